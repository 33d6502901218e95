package sim

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"strconv"
	"strings"

	"millrace/internal/fault"
)

// Roles of an engine in a unit.
const (
	rolePrefill = "prefill"
	roleDecode  = "decode"
	roleEncoder = "encoder"
)

// handing is a request's part in a hand-over.
type handing struct {
	offers string // the name under which its cache is kept for a peer; "" = it is not
	takes  string // the name of a peer's
	from   string // that peer, host:port
	waits  bool   // the peer may come later
	lost   bool   // it was told too little: everything is computed, without a word
	room   bool   // a name that two requests must not share
	stays  bool   // the answer waits for the transfer
}

// bootstrap is SGLang's.
type bootstrap struct {
	host string
	port int
	room int64 // -1 = none
}

// disagg is TensorRT-LLM's disaggregated_params.
type disagg struct {
	Type     string          `json:"request_type"`
	ID       int64           `json:"disagg_request_id"`
	Context  int64           `json:"ctx_request_id"`
	State    string          `json:"encoded_opaque_state"`
	Endpoint string          `json:"ctx_info_endpoint"`
	Style    int             `json:"schedule_style"`
	First    []uint32        `json:"first_gen_tokens"`
	Usage    json.RawMessage `json:"ctx_usage"`
	Rank     *int            `json:"ctx_dp_rank"`
}

// fakeBootstrap is the peer that SGLang's own health requests name: there is none, and nothing is transferred.
const fakeBootstrap = "2.2.2.2"

// hand finds a request's part. An error here ends the request; a role that must not be asked for ends the engine.
func (e *Engine) hand(q *request) (h handing, err error) {
	switch e.voice.(type) {
	case sglangVoice:
		return e.handRoom(q)
	case trtllmVoice:
		return e.handDisagg(q), nil
	}
	return e.handParams(q)
}

// handParams is vLLM's: NIXL and Mooncake.
func (e *Engine) handParams(q *request) (h handing, err error) {
	t := &q.transfer
	switch {
	case t.TransferID != "" && (e.role() == rolePrefill && t.RemotePrefill || e.role() == roleDecode && t.RemoteDecode):
		e.die("AssertionError: the connector's role does not do this")
		return h, errDead()
	case t.RemoteDecode && t.TransferID != "":
		h.offers = "transfer " + t.TransferID
	case t.RemoteDecode:
		h.offers = "request chatcmpl-" + q.id
	case t.RemotePrefill && t.TransferID != "" && t.Bootstrap != "" && t.Engine != "":
		h.takes, h.from, h.waits = "transfer "+t.TransferID, strings.TrimPrefix(t.Bootstrap, "http://"), true
	case t.pulls(e.id):
		h.takes, h.from, h.waits = "request "+t.Request, net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), t.Mode == "push"
	default:
		h.lost = e.role() == roleDecode || t.RemotePrefill
	}
	return h, nil
}

// handRoom is SGLang's: a server with a role takes nothing without a room.
func (e *Engine) handRoom(q *request) (h handing, err error) {
	b := &q.bootstrap
	if e.role() != rolePrefill && e.role() != roleDecode {
		return h, nil
	}
	if b.room < 0 || b.host == "" {
		return h, fault.New(fault.Invalid, "Disaggregated request received without bootstrap room id. If you want to use PD disaggregation, please send the request to the router.")
	}
	if b.host == fakeBootstrap {
		return h, nil
	}
	if q.n > 1 {
		return h, fault.New(fault.Invalid, "Answers of one request cannot share a bootstrap room.")
	}
	h.room = true
	name := "room " + strconv.FormatInt(b.room, 10)
	if e.role() == rolePrefill {
		h.offers, h.stays = name, true
	} else {
		h.takes, h.from, h.waits = name, net.JoinHostPort(b.host, strconv.Itoa(b.port)), true
	}
	return h, nil
}

// handDisagg is TensorRT-LLM's, context first or generation first.
func (e *Engine) handDisagg(q *request) (h handing) {
	d := q.disagg
	switch {
	case d == nil:
		h.lost = e.role() == roleDecode
	case d.Type == "context_only":
		h.offers = "context " + strconv.FormatInt(d.ID, 10)
	case d.Type == "generation_only" && d.Style == 1:
		h.takes, h.from, h.waits = "context "+strconv.FormatInt(d.Context, 10), strings.TrimPrefix(d.Endpoint, "http://"), true
	case d.Type == "generation_only":
		where, err := base64.StdEncoding.DecodeString(d.State)
		h.takes, h.from = "context "+strconv.FormatInt(d.ID, 10), string(where)
		h.lost = err != nil || len(where) == 0
	}
	return h
}
