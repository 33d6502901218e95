package sim

import (
	"encoding/json"
	"net/http"
	"strings"
)

// wholeAnswer is a non-streamed answer, with vLLM's fields.
type wholeAnswer struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Created     int64           `json:"created"`
	Model       string          `json:"model"`
	Choices     []wholeChoice   `json:"choices"`
	ServiceTier *string         `json:"service_tier"`
	Fingerprint string          `json:"system_fingerprint"`
	Usage       json.RawMessage `json:"usage,omitempty"`
	Transfer    json.RawMessage `json:"kv_transfer_params"`
}

type wholeChoice struct {
	Index    int           `json:"index"`
	Message  *wholeMessage `json:"message,omitempty"` // chat
	Text     *string       `json:"text,omitempty"`    // completions
	Logprobs *string       `json:"logprobs"`
	Finish   string        `json:"finish_reason"`
	Stop     *string       `json:"stop_reason"`
	TokenIDs []uint32      `json:"token_ids"`
}

type wholeMessage struct {
	Role      string      `json:"role"`
	Content   *string     `json:"content"`
	Refusal   *string     `json:"refusal"`
	ToolCalls []wholeCall `json:"tool_calls,omitempty"`
	Reasoning *string     `json:"reasoning"`
}

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
	ans := wholeAnswer{ID: "cmpl-" + a.q.id, Object: "text_completion", Created: a.e.clock.Now().Unix(), Model: a.q.model, Fingerprint: fingerprint}
	if a.q.chat {
		ans.ID, ans.Object = "chatcmpl-"+a.q.id, "chat.completion"
	}
	for i, s := range a.seqs {
		ans.Choices = append(ans.Choices, a.choice(i, s))
	}
	if !a.faults.NoUsage {
		ans.Usage = a.appendUsage(nil)
	}
	if a.q.transfer.RemoteDecode {
		ans.Transfer = a.e.transferParams(a, a.seqs[0])
	}
	writeJSON(w, http.StatusOK, ans)
	return nil
}

// strikeWhole is a fault in an answer of which nothing has been written.
func (a *answering) strikeWhole(w http.ResponseWriter, r *http.Request, due int) error {
	if due == a.faults.ErrorInStream {
		writeStatus(w, http.StatusInternalServerError, "EngineCore encountered an issue. See stack trace (above) for the root cause.", "InternalServerError", "")
		return nil
	}
	write := func(garbage string) error {
		_, err := w.Write([]byte(garbage))
		return err
	}
	return a.e.strike(w, r, &a.faults, due, write)
}

func (a *answering) choice(i int, s *sequence) wholeChoice {
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
	c := wholeChoice{Index: i, Finish: reason}
	text := said.String()
	if stop != "" {
		c.Stop, text = &stop, text[:s.answer.cut]
	}
	if !a.q.chat {
		c.Text = &text
		return c
	}
	c.Message = &wholeMessage{Role: "assistant", ToolCalls: calls}
	if text != "" || len(calls) == 0 {
		c.Message.Content = &text
	}
	if thought.Len() > 0 {
		t := thought.String()
		c.Message.Reasoning = &t
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
