package sim

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"millrace/serving/engine/scan"
)

// fingerprint is the system_fingerprint of every answer.
const fingerprint = "simulated"

// stream writes an answer as server-sent events, a chunk per token. It returns errCut when the connection must be broken.
func (a *answering) stream(w http.ResponseWriter, r *http.Request) error {
	out := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	a.startChunks()
	defer a.endChunks()
	write := func(text string) error {
		a.buf = append(a.buf, text...)
		_, err := w.Write(a.buf)
		a.buf = a.buf[:0]
		if err != nil {
			return err
		}
		return out.Flush()
	}
	for {
		if !a.next(r) {
			return errCut
		}
		for more := true; more; {
			more = a.fill()
			if len(a.buf) > 0 {
				if err := write(""); err != nil {
					return err
				}
			}
			if a.sent != a.faults.due(a.struck) {
				continue
			}
			a.struck = a.sent
			if err := a.e.strike(w, r, &a.faults, a.sent, write); errors.Is(err, errDone) {
				return nil
			} else if err != nil {
				return err
			}
		}
		if ended, whole := a.progress(); ended {
			if !whole {
				return errCut // the engine is stopping
			}
			a.end()
			return write("")
		}
	}
}

// startChunks fixes what all chunks begin with.
func (a *answering) startChunks() {
	object, id := "text_completion", "cmpl-"
	if a.q.chat {
		object, id = "chat.completion.chunk", "chatcmpl-"
	}
	b := append([]byte(`data: {"id":`), scan.Quote(nil, id+a.q.id)...)
	b = append(b, `,"object":"`+object+`","created":`...)
	b = strconv.AppendInt(b, a.e.clock.Now().Unix(), 10)
	b = append(b, `,"model":`...)
	b = append(b, scan.Quote(nil, a.q.model)...)
	a.head = append(b, `,"system_fingerprint":"`+fingerprint+`","choices":[`...)
	a.buf = *chunkSpace.Get().(*[]byte)
}

// chunkSpace holds buffers of chunks between answers.
var chunkSpace = sync.Pool{New: func() any { return new([]byte) }}

func (a *answering) endChunks() {
	space := a.buf[:0]
	chunkSpace.Put(&space)
}

// fill appends chunks for the tokens that have been generated. It stops at the next fault and when enough is gathered;
// true says that there may be more.
func (a *answering) fill() (more bool) {
	due := a.faults.due(a.struck)
	for i, s := range a.seqs {
		for n := int(s.produced.Load()); a.choices[i].sent < n; {
			if due > 0 && a.sent == due {
				return true
			}
			if a.choices[i].sent == 0 && a.q.chat {
				a.open(i)
				a.buf = append(a.buf, `{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
				a.closeChunk()
			}
			a.sent++
			a.choices[i].sent++
			a.token(i, s, a.choices[i].sent-1)
			if len(a.buf) >= flushBytes {
				return true
			}
		}
	}
	return false
}

// flushBytes is how much is gathered for one write.
const flushBytes = 64 << 10

// open starts a chunk of choice i, up to its delta or text.
func (a *answering) open(i int) {
	a.buf = append(a.buf, a.head...)
	a.buf = append(a.buf, `{"index":`...)
	a.buf = strconv.AppendInt(a.buf, int64(i), 10)
	if a.q.chat {
		a.buf = append(a.buf, `,"delta":`...)
	} else {
		a.buf = append(a.buf, `,"text":`...)
	}
}

// closeChunk ends a chunk after its choices.
func (a *answering) closeChunk() {
	if a.q.everyUsage && !a.faults.NoUsage {
		a.buf = append(a.buf, `,"usage":`...)
		a.buf = a.appendUsage(a.buf)
	}
	a.buf = append(a.buf, "}\n\n"...)
}

// token appends the chunk of token t of choice i, and with the last one its finish.
func (a *answering) token(i int, s *sequence, t int) {
	g := s.answer.segment(t)
	p := g.at(t - g.start)
	last := t == s.target-1
	switch {
	case !a.q.chat:
		a.open(i)
		a.buf = append(append(append(a.buf, '"'), a.choices[i].shown(s.answer, p)...), '"')
	case g.part == toolCall:
		a.call(i, g, t-g.start)
		if !last {
			return
		}
		a.open(i)
		a.buf = append(a.buf, "{}"...)
	default:
		name, text := `{"content":"`, p.json
		if g.part == reasoning {
			name = `{"reasoning":"`
		} else {
			text = a.choices[i].shown(s.answer, p)
		}
		a.open(i)
		a.buf = append(append(append(a.buf, name...), text...), `"}`...)
	}
	a.buf = append(a.buf, `,"logprobs":null,"finish_reason":`...)
	if last {
		reason, stop := a.finish(s)
		a.buf = append(append(append(a.buf, '"'), reason...), `","stop_reason":`...)
		if stop == "" {
			a.buf = append(a.buf, "null"...)
		} else {
			a.buf = append(a.buf, scan.Quote(nil, stop)...)
		}
		a.buf = append(a.buf, `,"token_ids":null}]`...)
		if a.q.transfer.RemoteDecode {
			a.buf = append(append(a.buf, `,"kv_transfer_params":`...), a.e.transferParams(a, s)...)
		}
	} else {
		a.buf = append(a.buf, `null,"token_ids":null}]`...)
	}
	a.closeChunk()
}

// call appends the chunk of token j of a tool call: nothing until the name is complete, then the name, then arguments.
func (a *answering) call(i int, g *segment, j int) {
	if j < g.nameEnds-1 {
		return
	}
	a.open(i)
	a.buf = append(a.buf, `{"content":null,"tool_calls":[{`...)
	if j == g.nameEnds-1 {
		a.buf = append(a.buf, `"id":"`+a.callID(i, g)+`","type":"function","index":`...)
		a.buf = strconv.AppendInt(a.buf, int64(g.call), 10)
		a.buf = append(append(a.buf, `,"function":{"name":`...), scan.Quote(nil, g.name)...)
		a.buf = append(a.buf, `,"arguments":""}}]}`...)
	} else {
		a.buf = append(a.buf, `"index":`...)
		a.buf = strconv.AppendInt(a.buf, int64(g.call), 10)
		a.buf = append(append(append(a.buf, `,"function":{"arguments":"`...), g.at(j).json...), `"}}]}`...)
	}
	a.buf = append(a.buf, `,"logprobs":null,"finish_reason":null,"token_ids":null}]`...)
	a.closeChunk()
}

func (a *answering) callID(i int, g *segment) string {
	return "chatcmpl-tool-" + a.q.id + "-" + strconv.Itoa(i) + "-" + strconv.Itoa(g.call)
}

// end appends what follows the last token: usage when it was asked for, and the end mark.
func (a *answering) end() {
	if a.q.lastUsage && !a.faults.NoUsage {
		a.buf = append(append(a.buf, a.head...), `],"usage":`...)
		a.buf = a.appendUsage(a.buf)
		a.buf = append(a.buf, "}\n\n"...)
	}
	a.buf = append(a.buf, "data: [DONE]\n\n"...)
}

// transferParams is what a prefill engine hands to the decode engine, as vLLM's NIXL connector (pull) does.
func (e *Engine) transferParams(a *answering, s *sequence) []byte {
	blocks := make([]int, (s.prompt+e.cfg.BlockSize-1)/e.cfg.BlockSize)
	for i := range blocks {
		blocks[i] = i
	}
	b, _ := json.Marshal(map[string]any{ // plain values always marshal
		"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [][]int{blocks}, "remote_engine_id": e.id,
		"remote_request_id": "chatcmpl-" + a.q.id, "remote_host": "localhost", "remote_port": max(e.cfg.Port, 1),
		"tp_size": 1, "dcp_size": 1, "pp_size": 1, "remote_num_tokens": s.prompt, "remote_blocks_expiry_time": nil,
		"transfer_mode": "pull", "remote_prefill_cached_tokens": s.cached.Load(),
	})
	return b
}
