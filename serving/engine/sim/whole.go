package sim

import (
	"encoding/json"
	"net/http"
	"strings"
)

// message is what the messages of all engines have.
func message(text string, calls []wholeCall) map[string]any {
	m := map[string]any{"role": "assistant", "content": nil}
	if text != "" || len(calls) == 0 {
		m["content"] = text
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	return m
}

func thoughtOf(text string) any { return orNull(text) }

type wholeCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// whole waits for all of an answer and writes it as one object.
func (a *answering) whole(w http.ResponseWriter, r *http.Request) error {
	for {
		if !a.next(r) {
			return errCut
		}
		a.sent = 0
		for i, s := range a.seqs {
			a.choices[i].sent = int(s.produced.Load())
			a.sent += a.choices[i].sent
		}
		if due := a.faults.due(0); due > 0 && a.sent >= due {
			return a.strikeWhole(w, r, due)
		}
		if ended, whole := a.progress(); ended {
			if !whole {
				return errCut
			}
			break
		}
	}
	if !a.e.waitTaken(r.Context(), a.q) {
		a.e.stats.transferFailed.Add(1)
		a.e.writeStatus(w, http.StatusInternalServerError, "No peer came for the cache.", "InternalServerError")
		return nil
	}
	writeJSON(w, http.StatusOK, a.object())
	return nil
}

// object is the whole answer.
func (a *answering) object() map[string]any {
	ans := map[string]any{"id": "cmpl-" + a.q.id, "object": "text_completion", "created": a.e.clock.Now().Unix(), "model": a.q.model,
		"system_fingerprint": fingerprint}
	if a.q.chat {
		ans["id"], ans["object"] = "chatcmpl-"+a.q.id, "chat.completion"
	}
	var choices []map[string]any
	for i, s := range a.seqs {
		choices = append(choices, a.choice(i, s))
	}
	ans["choices"] = choices
	if !a.faults.NoUsage {
		ans["usage"] = json.RawMessage(a.appendUsage(nil))
	}
	if a.e.cfg.Role == roleEncoder {
		ans["ec_transfer_params"] = a.e.encodedParams(a.q)
	}
	if params := a.e.transferParams(a, a.seqs[0]); params != nil {
		ans["kv_transfer_params"] = json.RawMessage(params)
	}
	if d := a.q.disagg; d != nil && d.Type == "context_only" {
		ans["prompt_token_ids"] = a.q.prompts[0]
		if choices[0]["finish_reason"] == "length" && !a.faults.NoParams {
			choices[0]["disaggregated_params"] = a.e.contextParams(a.q)
		}
	}
	return ans
}

// strikeWhole is a fault in an answer of which nothing has been written.
func (a *answering) strikeWhole(w http.ResponseWriter, r *http.Request, due int) error {
	if due == a.faults.ErrorInStream {
		a.e.writeStatus(w, http.StatusInternalServerError, "EngineCore encountered an issue. See stack trace (above) for the root cause.", "InternalServerError")
		return nil
	}
	write := func(garbage string) error {
		_, err := w.Write([]byte(garbage))
		return err
	}
	return a.e.strike(w, r, &a.faults, due, write)
}

func (a *answering) choice(i int, s *sequence) map[string]any {
	var said, thought strings.Builder
	var calls []wholeCall
	for k := range s.answer.segments {
		g := &s.answer.segments[k]
		n := min(s.target-g.start, g.n)
		if n <= 0 {
			continue
		}
		if g.part == toolCall {
			if n >= g.nameEnds {
				calls = append(calls, a.wholeCall(i, g, n))
			}
			continue
		}
		b := &said
		if g.part == reasoning && a.q.chat {
			b = &thought
		}
		for j := range n {
			b.WriteString(g.at(j).text)
		}
	}
	reason, stop := a.finish(s)
	text := said.String()
	c := map[string]any{"index": i, "finish_reason": reason, "logprobs": nil}
	if name := a.e.voice.stopMember(); name != "" {
		c[name] = nil
		switch {
		case stop != "":
			c[name] = stop
		case reason != "length" && a.traits.stopsByToken != "":
			c[name] = json.RawMessage(a.traits.stopsByToken)
		}
	}
	if stop != "" {
		text = text[:s.answer.cut]
	}
	if a.q.chat {
		c["message"] = a.e.voice.message(text, thought.String(), calls)
	} else {
		c["text"] = text
	}
	return c
}

// wholeCall is a tool call of which n tokens were generated.
func (a *answering) wholeCall(i int, g *segment, n int) wholeCall {
	c := wholeCall{ID: a.callID(i, g), Type: "function"}
	c.Function.Name = g.name
	for j := g.nameEnds; j < n; j++ {
		c.Function.Arguments += g.at(j).text
	}
	return c
}
