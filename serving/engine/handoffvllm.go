package engine

import (
	"bytes"
	"io"
	"strconv"

	"millrace/serving/engine/scan"
)

// Handoff implements Handoffs: NIXL, where D pulls (the default) or P pushes, or Mooncake.
func (vllm) Handoff(t Transfer) (Handoff, error) { return vllmHandoff(vllm{}, t) }

// Handoff implements Handoffs: the simulated engine hands over as vLLM does.
func (simulated) Handoff(t Transfer) (Handoff, error) { return vllmHandoff(simulated{}, t) }

func vllmHandoff(d Driver, t Transfer) (Handoff, error) {
	switch {
	case t.Backend == "nixl" && (t.Mode == "" || t.Mode == "pull"):
		return nixlPull{nixl{d}}, nil
	case t.Backend == "nixl" && t.Mode == "push":
		return nixlPush{nixl{d}}, nil
	case t.Backend == "mooncake":
		return mooncake{nixl{d}}, nil
	}
	return nil, noHandoff(d.Family(), t)
}

// nixl is what vLLM's connectors share.
type nixl struct{ driver Driver }

func (nixl) Alone() bool { return true }
func (nixl) Holds() bool { return false }

func (nixl) Mint(random io.Reader, _ Peer) (ids HandoffIDs, err error) {
	ids.Request, err = name(random)
	return ids, err
}

func (nixl) Prefill(dst, body []byte, h Handover) []byte {
	dst = oneWhole(leg(dst, body, prefillWithout), body)
	dst = withRequest(dst, "request_id", h.IDs.Request)
	return append(dst, `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}`...)
}

// prefillWithout are the members that a prefill leg is told its own of.
var prefillWithout = func() map[string]bool {
	m := set("request_id")
	for name := range lengthMembers {
		m[name] = true
	}
	return m
}()

func (n nixl) Read(answer []byte) (Handed, error) {
	h, _, _, err := prefilled(n.driver, answer)
	if err == nil {
		h.Params = bytes.Clone(member(answer, "kv_transfer_params"))
	}
	return h, err
}

// decode begins D's body: the client's, under the attempt's id.
func (nixl) decode(dst, body []byte, h Handover) []byte {
	return withRequest(leg(dst, body, set("request_id")), "request_id", h.IDs.Request)
}

// Abort names the request by what vLLM makes of its id.
func (nixl) Abort(h Handover) Abort {
	id := scan.Quote(nil, "chatcmpl-"+h.IDs.Request)
	return Abort{"/inference/v1/abort_requests", append(append([]byte(`{"request_ids":[`), id...), "]}"...)}
}

// nixlPull: P answers with where its blocks lie, D fetches them.
type nixlPull struct{ nixl }

func (nixlPull) Name() string     { return "nixl-pull" }
func (nixlPull) Concurrent() bool { return false }

// Decode gives P's parameters as they are: a subset would make D compute everything again without a word.
func (n nixlPull) Decode(dst, body []byte, h Handover, handed *Handed) []byte {
	dst = n.decode(dst, body, h)
	if handed != nil && handed.Params != nil {
		dst = append(append(dst, `,"kv_transfer_params":`...), handed.Params...)
	}
	return append(dst, '}')
}

// nixlPush: D registers with P, P writes.
type nixlPush struct{ nixl }

func (nixlPush) Name() string     { return "nixl-push" }
func (nixlPush) Concurrent() bool { return true }

func (n nixlPush) Decode(dst, body []byte, h Handover, _ *Handed) []byte {
	p := &h.From
	dst = append(n.decode(dst, body, h), `,"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":`...)
	dst = scan.Quote(append(scan.Quote(dst, p.Engine), `,"remote_request_id":`...), "chatcmpl-"+h.IDs.Request)
	dst = scan.Quote(append(dst, `,"remote_host":`...), p.Host)
	dst = strconv.AppendInt(append(dst, `,"remote_port":`...), int64(p.Port), 10)
	dst = strconv.AppendInt(append(dst, `,"tp_size":`...), int64(p.Parallel.tensor()), 10)
	dst = strconv.AppendInt(append(dst, `,"pp_size":`...), int64(p.Parallel.pipeline()), 10)
	return append(dst, `,"transfer_mode":"push"}}`...)
}

// mooncake: both legs name the transfer. P must end by its length, else D waits in vain.
type mooncake struct{ nixl }

func (mooncake) Name() string     { return "mooncake" }
func (mooncake) Concurrent() bool { return true }

func (mooncake) Mint(random io.Reader, _ Peer) (ids HandoffIDs, err error) {
	if ids.Request, err = name(random); err == nil {
		ids.Transfer, err = name(random)
	}
	return ids, err
}

func (mooncake) Prefill(dst, body []byte, h Handover) []byte {
	dst = withRequest(oneWhole(leg(dst, body, prefillWithout), body), "request_id", h.IDs.Request)
	dst = append(dst, `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":`...)
	return append(scan.Quote(dst, h.IDs.Transfer), "}}"...)
}

func (m mooncake) Read(answer []byte) (Handed, error) {
	h, finish, _, err := prefilled(m.driver, answer)
	h.Complete = err == nil && finish != "length"
	return h, err
}

func (m mooncake) Decode(dst, body []byte, h Handover, _ *Handed) []byte {
	dst = append(m.decode(dst, body, h), `,"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":`...)
	dst = scan.Quote(append(scan.Quote(dst, h.From.Engine), `,"remote_bootstrap_addr":`...), "http://"+h.From.address())
	return append(scan.Quote(append(dst, `,"transfer_id":`...), h.IDs.Transfer), "}}"...)
}
