package engine

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"millrace/serving/engine/scan"
)

// Handoff implements Handoffs: context first (the default), or both at once.
func (trtllm) Handoff(t Transfer) (Handoff, error) {
	switch t.Backend {
	case "ucx", "nixl", "mpi", "default":
	default:
		return nil, noHandoff(TRTLLM, t)
	}
	switch t.Mode {
	case "", "context_first":
		return contextFirst{}, nil
	case "generation_first":
		return generationFirst{}, nil
	}
	return nil, noHandoff(TRTLLM, t)
}

// disagg is what both of TensorRT-LLM's ways share. Its members are told nothing but disaggregated_params: it refuses what
// it does not know.
type disagg struct{}

func (disagg) Alone() bool { return true }
func (disagg) Holds() bool { return false }

// leastDisagg keeps our numbers apart from those that a server gives its own requests.
const leastDisagg = 1 << 42

func (disagg) Mint(random io.Reader, _ Peer) (ids HandoffIDs, err error) {
	ids.Room, err = number63(random)
	ids.Room |= leastDisagg
	return ids, err
}

func (disagg) prefill(dst, body []byte, h Handover, style int64) []byte {
	dst = oneWhole(leg(dst, body, lengthMembers), body)
	dst = append(dst, `,"disaggregated_params":{"request_type":"context_only","disagg_request_id":`...)
	dst = append(strconv.AppendInt(dst, h.IDs.Room, 10), `,"schedule_style":`...)
	return append(strconv.AppendInt(dst, style, 10), "}}"...)
}

// Abort: closing the connection is its only verb.
func (disagg) Abort(Handover) Abort { return Abort{} }

// contextFirst: P's answer goes back with the generation request.
type contextFirst struct{ disagg }

func (contextFirst) Name() string     { return "context-first" }
func (contextFirst) Concurrent() bool { return false }

func (c contextFirst) Prefill(dst, body []byte, h Handover) []byte { return c.prefill(dst, body, h, 0) }

// Read takes P's parameters, turned into those of the generation request. An answer that did not end by its length is whole.
func (contextFirst) Read(answer []byte) (Handed, error) {
	h, finish, choice, err := prefilled(trtllm{}, answer)
	if err != nil {
		return h, err
	}
	if h.Complete = finish != "length" && finish != "not_finished"; h.Complete {
		return h, nil
	}
	params := member(choice, "disaggregated_params")
	if params == nil {
		return h, errors.New("engine: a context server gave no disaggregated_params")
	}
	h.Params = keepMembers(nil, params, func(key string, v []byte) []byte {
		switch key {
		case "request_type":
			return []byte(`"generation_only"`)
		case "ctx_usage":
			return nil
		}
		return v
	})
	if raw := member(answer, "usage"); raw != nil {
		h.Params = append(append(append(h.Params[:len(h.Params)-1], `,"ctx_usage":`...), raw...), '}')
	}
	h.Tokens = bytes.Clone(member(answer, "prompt_token_ids"))
	return h, nil
}

func (contextFirst) Decode(dst, body []byte, _ Handover, handed *Handed) []byte {
	dst = leg(dst, body, nil)
	if handed != nil && handed.Params != nil {
		dst = append(append(dst, `,"disaggregated_params":`...), handed.Params...)
		if handed.Tokens != nil {
			dst = append(append(dst, `,"prompt_token_ids":`...), handed.Tokens...)
		}
	}
	return append(dst, '}')
}

// generationFirst: both at once; D asks P for what it needs.
type generationFirst struct{ disagg }

func (generationFirst) Name() string     { return "generation-first" }
func (generationFirst) Concurrent() bool { return true }

func (g generationFirst) Prefill(dst, body []byte, h Handover) []byte {
	return g.prefill(dst, body, h, 1)
}

func (generationFirst) Read(answer []byte) (Handed, error) {
	h, finish, _, err := prefilled(trtllm{}, answer)
	h.Complete = err == nil && finish != "length" && finish != "not_finished"
	return h, err
}

func (generationFirst) Decode(dst, body []byte, h Handover, _ *Handed) []byte {
	dst = append(leg(dst, body, nil), `,"disaggregated_params":{"request_type":"generation_only","disagg_request_id":`...)
	dst = append(strconv.AppendInt(dst, h.IDs.Room, 10), `,"ctx_request_id":`...)
	dst = append(strconv.AppendInt(dst, h.IDs.Room, 10), `,"ctx_info_endpoint":`...)
	return append(scan.Quote(dst, "http://"+h.From.address()), `,"schedule_style":1}}`...)
}
