// Package streamtest checks an answer in Chat Completions' shape as the strictest client would, and puts it together, so
// that tests of every layer hold to the same rules. It shares no code with the writers of such answers.
package streamtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// Answer is what a client has after reading an answer.
type Answer struct {
	ID, Model string
	Created   int64
	Choices   []Choice
	Usage     *Usage
	Error     *Error // streamed only: the error frame
}

// Choice is one choice.
type Choice struct {
	Content, Reasoning, Refusal string
	Calls                       []Call
	Logprobs                    []any // elements of logprobs.content
	Finish                      string
}

// Call is a tool call.
type Call struct{ ID, Name, Arguments string }

// Usage is the usage object.
type Usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	Details    *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Generated *struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// Error is an error frame.
type Error struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    any    `json:"code"`
	Param   any    `json:"param"`
}

// Want is what the client asked for.
type Want struct {
	N     int // choices; 0 = 1
	Usage bool
	Model string
}

type chunk struct {
	ID      string
	Object  string
	Created int64
	Model   string
	Choices []choice
	Usage   json.RawMessage
	Error   *Error
}

type choice struct {
	Index    int
	Delta    map[string]json.RawMessage
	Logprobs *struct{ Content []any }
	Finish   *string `json:"finish_reason"`
}

// reader is the state of a strict client.
type reader struct {
	want    Want
	a       *Answer
	started []bool
	ended   bool // the usage chunk has come
	chunks  int
}

// Check reads a streamed answer and returns what it came to, or the first rule that it breaks.
func Check(body []byte, w Want) (*Answer, error) {
	if w.N == 0 {
		w.N = 1
	}
	r := reader{want: w, a: &Answer{Choices: make([]Choice, w.N)}, started: make([]bool, w.N)}
	events := bytes.Split(body, []byte("\n\n"))
	if len(events) < 2 || len(events[len(events)-1]) != 0 {
		return r.a, fmt.Errorf("the stream does not end with an empty line")
	}
	events = slices.DeleteFunc(events[:len(events)-1], func(e []byte) bool { return bytes.HasPrefix(e, []byte(": ")) }) // comments
	for i, e := range events {
		data, ok := bytes.CutPrefix(e, []byte("data: "))
		if !ok || bytes.ContainsAny(data, "\r\n") {
			return r.a, fmt.Errorf("event %d is no single data line: %q", i, e)
		}
		last := i == len(events)-1
		if string(data) == "[DONE]" != last {
			return r.a, fmt.Errorf("[DONE] and the last event differ: %q at %d of %d", data, i, len(events))
		}
		if last {
			break
		}
		if r.a.Error != nil {
			return r.a, fmt.Errorf("something follows the error frame: %q", data)
		}
		if err := r.event(data); err != nil {
			return r.a, fmt.Errorf("event %d %s: %w", i, data, err)
		}
	}
	return r.a, r.atEnd()
}

func (r *reader) atEnd() error {
	if r.a.Error != nil {
		return nil
	}
	for i, c := range r.a.Choices {
		if c.Finish == "" {
			return fmt.Errorf("choice %d has no finish reason", i)
		}
	}
	if r.want.Usage != (r.a.Usage != nil) {
		return fmt.Errorf("usage asked for: %v, given: %v", r.want.Usage, r.a.Usage)
	}
	return nil
}

func (r *reader) event(data []byte) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if c.Error != nil {
		r.a.Error = c.Error
		return nil
	}
	if err := allowed(data, "id", "object", "created", "model", "choices", "usage"); err != nil {
		return err
	}
	if r.chunks++; r.chunks == 1 {
		r.a.ID, r.a.Model, r.a.Created = c.ID, c.Model, c.Created
	}
	switch {
	case c.Object != "chat.completion.chunk" || c.ID == "" || c.Created == 0:
		return fmt.Errorf("object, id or created is wrong")
	case c.ID != r.a.ID || c.Model != r.a.Model || c.Created != r.a.Created:
		return fmt.Errorf("id, model or time changed")
	case r.want.Model != "" && c.Model != r.want.Model:
		return fmt.Errorf("model %q", c.Model)
	case r.ended:
		return fmt.Errorf("a chunk after the usage chunk")
	}
	if err := r.usage(&c); err != nil {
		return err
	}
	for i := range c.Choices {
		if err := r.choice(&c.Choices[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) usage(c *chunk) error {
	has := len(c.Usage) > 0 && string(c.Usage) != "null"
	switch {
	case !r.want.Usage && len(c.Usage) > 0:
		return fmt.Errorf("usage that was not asked for")
	case has != (len(c.Choices) == 0):
		return fmt.Errorf("usage and choices in one chunk, or neither")
	case r.want.Usage && len(c.Usage) == 0:
		return fmt.Errorf("no usage:null")
	case has:
		r.ended = true
		return json.Unmarshal(c.Usage, &r.a.Usage)
	}
	return nil
}

func (r *reader) choice(c *choice) error {
	if c.Index < 0 || c.Index >= r.want.N {
		return fmt.Errorf("choice %d of %d", c.Index, r.want.N)
	}
	into := &r.a.Choices[c.Index]
	if into.Finish != "" {
		return fmt.Errorf("something after the finish of choice %d", c.Index)
	}
	role, hasRole := c.Delta["role"]
	if hasRole == r.started[c.Index] || hasRole && string(role) != `"assistant"` {
		return fmt.Errorf("the role is not just on the first chunk")
	}
	r.started[c.Index] = true
	for name, v := range c.Delta {
		if err := into.delta(name, v); err != nil {
			return err
		}
	}
	if c.Logprobs != nil {
		into.Logprobs = append(into.Logprobs, c.Logprobs.Content...)
	}
	if c.Finish != nil {
		if into.Finish = *c.Finish; len(c.Delta) != 0 {
			return fmt.Errorf("the finish chunk's delta is not {}")
		}
		switch into.Finish {
		case "stop", "length", "tool_calls", "content_filter":
		default:
			return fmt.Errorf("unknown finish reason %q", into.Finish)
		}
	} else if len(c.Delta) == 0 && c.Logprobs == nil {
		return fmt.Errorf("an empty delta that does not finish")
	}
	return nil
}

func (c *Choice) delta(name string, v json.RawMessage) error {
	text := func(into *string) error {
		var s string
		err := json.Unmarshal(v, &s)
		*into += s
		return err
	}
	switch name {
	case "role":
		return nil
	case "content":
		return text(&c.Content)
	case "reasoning_content":
		return text(&c.Reasoning)
	case "refusal":
		return text(&c.Refusal)
	case "tool_calls":
		return c.calls(v)
	}
	return fmt.Errorf("unknown member %q of a delta", name)
}

func (c *Choice) calls(v json.RawMessage) error {
	var pieces []struct {
		Index    *int
		ID       *string
		Type     *string
		Function *struct{ Name, Arguments *string }
	}
	if err := json.Unmarshal(v, &pieces); err != nil {
		return err
	}
	if len(pieces) == 0 {
		return fmt.Errorf("tool_calls is empty")
	}
	for _, p := range pieces {
		switch {
		case p.Index == nil || *p.Index < 0 || *p.Index > len(c.Calls) || p.Function == nil:
			return fmt.Errorf("a tool call's index has a gap or is missing")
		case *p.Index == len(c.Calls):
			if p.ID == nil || *p.ID == "" || p.Type == nil || *p.Type != "function" || p.Function.Name == nil || *p.Function.Name == "" {
				return fmt.Errorf("a tool call begins without id, type or name")
			}
			c.Calls = append(c.Calls, Call{ID: *p.ID, Name: *p.Function.Name})
		case p.ID != nil || p.Type != nil || p.Function.Name != nil:
			return fmt.Errorf("a tool call's id, type or name comes again")
		}
		if p.Function.Arguments != nil {
			c.Calls[*p.Index].Arguments += *p.Function.Arguments
		}
	}
	return nil
}

// Whole reads an answer that was given whole.
func Whole(body []byte, w Want) (*Answer, error) {
	var got struct {
		ID, Object, Model string
		Created           int64
		Choices           []struct {
			Index   int
			Message struct {
				Role      string
				Content   *string
				Refusal   *string
				Reasoning string `json:"reasoning_content"`
				Calls     []struct {
					ID, Type string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Logprobs *struct{ Content []any }
			Finish   string `json:"finish_reason"`
		}
		Usage *Usage
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return nil, err
	}
	if err := allowed(body, "id", "object", "created", "model", "choices", "usage"); err != nil {
		return nil, err
	}
	if got.Object != "chat.completion" || got.ID == "" || w.Model != "" && got.Model != w.Model || len(got.Choices) != max(w.N, 1) {
		return nil, fmt.Errorf("object, id, model or number of choices is wrong: %s", body)
	}
	a := &Answer{ID: got.ID, Model: got.Model, Created: got.Created, Usage: got.Usage}
	for i, c := range got.Choices {
		if c.Index != i || c.Message.Role != "assistant" || c.Finish == "" {
			return nil, fmt.Errorf("choice %d: index, role or finish is wrong: %s", i, body)
		}
		out := Choice{Reasoning: c.Message.Reasoning, Finish: c.Finish}
		if c.Message.Content != nil {
			out.Content = *c.Message.Content
		}
		if c.Message.Refusal != nil {
			out.Refusal = *c.Message.Refusal
		}
		if c.Logprobs != nil {
			out.Logprobs = c.Logprobs.Content
		}
		for _, k := range c.Message.Calls {
			if k.ID == "" || k.Type != "function" {
				return nil, fmt.Errorf("a tool call without id or type: %s", body)
			}
			out.Calls = append(out.Calls, Call{k.ID, k.Function.Name, k.Function.Arguments})
		}
		a.Choices = append(a.Choices, out)
	}
	return a, nil
}

// Same reports whether two answers say the same, whatever their ids and times. Calls' ids count.
func Same(a, b *Answer) bool {
	return reflect.DeepEqual(a.Choices, b.Choices)
}

func allowed(object []byte, names ...string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return err
	}
	for name := range members {
		found := false
		for _, n := range names {
			found = found || n == name
		}
		if !found {
			return fmt.Errorf("the member %q leaks", name)
		}
	}
	return nil
}
