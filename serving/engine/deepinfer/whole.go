package deepinfer

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"millrace/internal/fault"
)

// piece is what a whole answer needs of a chunk.
type piece struct {
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
			Calls     []struct {
				Index    int    `json:"index"`
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Usage json.RawMessage `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

type wholeCall struct {
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	Function map[string]string `json:"function"`
}

type wholeChoice struct {
	content, reasoning, finish string
	calls                      []wholeCall
}

// maxChoices bounds the choices of an answer.
const maxChoices = 128

// whole gathers an answer that is not streamed. Probes ask so; the gateway streams.
func (x *relay) whole(ctx context.Context, w http.ResponseWriter, id, model string) error {
	var choices []wholeChoice
	var usage json.RawMessage
	for {
		chunk, err := x.next(ctx)
		if errors.Is(err, errCancelled) {
			return fault.New(fault.Unavailable, "The request was cancelled.")
		}
		if err != nil {
			return err
		}
		if chunk == nil {
			break
		}
		var p piece
		if err := json.Unmarshal(chunk, &p); err != nil {
			return fault.Wrap(err, fault.Upstream, "The engine's answer cannot be read.")
		}
		if p.Error != nil {
			return fault.New(fault.Upstream, "The engine failed: %s", p.Error.Message)
		}
		if len(p.Usage) > 0 {
			usage = p.Usage
		}
		if choices, err = p.add(choices); err != nil {
			return err
		}
	}
	var all []any
	for i, c := range choices {
		message := map[string]any{"role": "assistant", "content": c.content}
		if c.reasoning != "" {
			message["reasoning_content"] = c.reasoning
		}
		if len(c.calls) > 0 {
			message["tool_calls"] = c.calls
		}
		all = append(all, map[string]any{"index": i, "message": message, "finish_reason": orNull(c.finish)})
	}
	answer(w, http.StatusOK, map[string]any{"id": "chatcmpl-" + id, "object": "chat.completion", "model": model, "choices": all, "usage": usage})
	return nil
}

func (p *piece) add(choices []wholeChoice) ([]wholeChoice, error) {
	for _, c := range p.Choices {
		if c.Index < 0 || c.Index >= maxChoices {
			return nil, fault.New(fault.Upstream, "The engine's answer has a choice %d.", c.Index)
		}
		for len(choices) <= c.Index {
			choices = append(choices, wholeChoice{})
		}
		at := &choices[c.Index]
		at.content += c.Delta.Content
		at.reasoning += c.Delta.Reasoning
		if c.Finish != "" {
			at.finish = c.Finish
		}
		for _, call := range c.Delta.Calls {
			if call.ID != "" {
				at.calls = append(at.calls, wholeCall{ID: call.ID, Type: "function", Function: map[string]string{"name": call.Function.Name}})
			}
			if n := len(at.calls); n > 0 {
				at.calls[n-1].Function["arguments"] += call.Function.Arguments
			}
		}
	}
	return choices, nil
}
