package engine

import (
	"io"
	"strconv"

	"millrace/serving/engine/scan"
)

// Handoff implements Handoffs. Whatever moves the bytes, both legs meet in a room of P's bootstrap server.
func (sglang) Handoff(t Transfer) (Handoff, error) {
	switch t.Backend {
	case "mooncake", "nixl", "mori", "ascend":
		return rooms{}, nil
	}
	return nil, noHandoff(SGLang, t)
}

// rooms: both legs carry the same three members. A room is used once: two requests in one end the scheduler.
type rooms struct{}

func (rooms) Name() string     { return "bootstrap-rooms" }
func (rooms) Concurrent() bool { return true }
func (rooms) Holds() bool      { return true }
func (rooms) Alone() bool      { return false } // a decode server waits for a peer

func (rooms) Mint(random io.Reader, from Peer) (ids HandoffIDs, err error) {
	if ids.Request, err = name(random); err == nil {
		ids.Room, err = room(random, from)
	}
	return ids, err
}

// Prefill keeps the lengths: a prefill server ends after one token by itself.
func (r rooms) Prefill(dst, body []byte, h Handover) []byte {
	return r.meet(append(leg(dst, body, roomsWithout), `,"stream":false`...), h)
}

var roomsWithout = set("stream", "stream_options", "rid")

func (rooms) Read(answer []byte) (Handed, error) {
	h, _, _, err := prefilled(sglang{}, answer)
	return h, err
}

func (r rooms) Decode(dst, body []byte, h Handover, _ *Handed) []byte {
	return r.meet(leg(dst, body, set("rid")), h)
}

func (rooms) meet(dst []byte, h Handover) []byte {
	dst = withRequest(dst, "rid", h.IDs.Request)
	dst = scan.Quote(append(dst, `,"bootstrap_host":`...), h.From.Host)
	dst = strconv.AppendInt(append(dst, `,"bootstrap_port":`...), int64(h.From.Port), 10)
	return append(strconv.AppendInt(append(dst, `,"bootstrap_room":`...), h.IDs.Room, 10), '}')
}

func (rooms) Abort(h Handover) Abort {
	return Abort{"/abort_request", append(scan.Quote([]byte(`{"rid":`), h.IDs.Request), '}')}
}
