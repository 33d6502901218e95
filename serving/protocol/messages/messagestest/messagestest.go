// Package messagestest checks answers in the shape of Anthropic's Messages API as the strictest client would, and puts
// streams together as official clients do, so that tests of every layer hold to the same rules. It shares no code with the
// writers of such answers.
package messagestest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Message is what a client has after reading an answer.
type Message struct {
	ID         string  `json:"id"`
	Type       string  `json:"type"`
	Role       string  `json:"role"`
	Model      string  `json:"model"`
	Content    []Block `json:"content"`
	StopReason *string `json:"stop_reason"`
	StopText   *string `json:"stop_sequence"`
	Usage      *Usage  `json:"usage"`
	Error      *Error  `json:"-"` // streamed only: the error that ended it
	Pings      int     `json:"-"`
}

// Block is a content block.
type Block struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	JSON      string          `json:"-"` // streamed: the partial_json, put together
}

// Usage is the usage object.
type Usage struct {
	Input      *int64 `json:"input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	Output     *int64 `json:"output_tokens"`
	Tier       string `json:"service_tier"`
	Details    *struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// Error is an error in Anthropic's envelope.
type Error struct {
	Type    string
	Message string
	Request string // its id
}

// reader is the state of a strict client.
type reader struct {
	m       Message
	started bool
	open    bool
	signed  bool
	grown   bool // the open block has got something
	closing bool // message_delta has come
	ended   bool
	first   bool // the latest event began the first block
}

// Check reads a streamed answer and returns what it came to, or the first rule that it breaks.
func Check(body []byte) (*Message, error) {
	r := &reader{}
	events := strings.Split(string(body), "\n\n")
	if n := len(events); n < 2 || events[n-1] != "" {
		return &r.m, fmt.Errorf("the stream does not end with an empty line")
	}
	for i, e := range events[:len(events)-1] {
		lines := strings.Split(e, "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "event: ") || !strings.HasPrefix(lines[1], "data: ") || strings.Contains(e, "\r") {
			return &r.m, fmt.Errorf("event %d has not just its two lines: %q", i, e)
		}
		if err := r.event(lines[0][len("event: "):], []byte(lines[1][len("data: "):])); err != nil {
			return &r.m, fmt.Errorf("event %d %s: %w", i, e, err)
		}
	}
	if !r.ended {
		return &r.m, fmt.Errorf("the stream ends without message_stop or error")
	}
	return &r.m, nil
}

type event struct {
	Type    string
	Message *Message
	Index   *int
	Block   *Block `json:"content_block"`
	Delta   map[string]json.RawMessage
	Usage   *Usage
	Error   *Error
}

func (r *reader) event(name string, data []byte) error {
	var e event
	if err := strict(data, &e, "type", "message", "index", "content_block", "delta", "usage", "error", "request_id"); err != nil {
		return err
	}
	pinged := r.first
	r.first = false
	switch {
	case name != e.Type:
		return fmt.Errorf("the event's name is not its type")
	case r.ended:
		return fmt.Errorf("something follows the end")
	case pinged && name != "ping":
		return fmt.Errorf("no ping follows the first content_block_start")
	case !r.started && name != "message_start":
		return fmt.Errorf("it comes before message_start")
	case r.closing && name != "message_stop":
		return fmt.Errorf("it comes after message_delta")
	}
	switch name {
	case "ping":
		r.m.Pings++
		return only(data, "type")
	case "error":
		r.ended = true
		r.m.Error = e.Error
		return errorShape(data)
	case "message_start":
		return r.start(&e)
	case "content_block_start":
		return r.openBlock(&e)
	case "content_block_delta":
		return r.grow(&e)
	case "content_block_stop":
		return r.closeBlock(&e)
	case "message_delta":
		return r.finish(&e)
	case "message_stop":
		if r.ended = true; !r.closing {
			return fmt.Errorf("it comes before message_delta")
		}
		return only(data, "type")
	}
	return fmt.Errorf("an unknown event")
}

func (r *reader) start(e *event) error {
	if r.started || e.Message == nil {
		return fmt.Errorf("it comes twice, or without a message")
	}
	r.started, r.m = true, *e.Message
	switch m := &r.m; {
	case m.StopReason != nil || m.StopText != nil || m.Content == nil || len(m.Content) != 0:
		return fmt.Errorf("the message has an end, or content that is no empty list")
	case *m.Usage.Input < 1:
		return fmt.Errorf("no input tokens")
	}
	return head(&r.m)
}

func (r *reader) openBlock(e *event) error {
	b := e.Block
	if r.open || e.Index == nil || *e.Index != len(r.m.Content) || b == nil {
		return fmt.Errorf("a block is open, or the index is not %d", len(r.m.Content))
	}
	r.open, r.signed, r.grown, r.first = true, false, false, len(r.m.Content) == 0
	switch b.Type {
	case "text":
		if b.Text == nil || *b.Text != "" {
			return fmt.Errorf("it does not begin with an empty text")
		}
	case "thinking":
		if b.Thinking == nil || *b.Thinking != "" || b.Signature == nil || *b.Signature != "" {
			return fmt.Errorf("it does not begin with empty thinking and signature")
		}
	case "tool_use":
		if b.ID == "" || b.Name == "" || string(b.Input) != "{}" {
			return fmt.Errorf("it does not begin with id, name and the input {}")
		}
	default:
		return fmt.Errorf("an unknown type of block")
	}
	r.m.Content = append(r.m.Content, *b)
	return nil
}

func (r *reader) grow(e *event) error {
	if !r.open || e.Index == nil || *e.Index != len(r.m.Content)-1 {
		return fmt.Errorf("it is not the open block's")
	}
	b := &r.m.Content[*e.Index]
	var kind string
	if err := json.Unmarshal(e.Delta["type"], &kind); err != nil || len(e.Delta) != 2 {
		return fmt.Errorf("a delta has a type and one member: %v", err)
	}
	allowed := map[string][2]string{"text_delta": {"text", "text"}, "thinking_delta": {"thinking", "thinking"},
		"signature_delta": {"thinking", "signature"}, "input_json_delta": {"tool_use", "partial_json"}}[kind]
	var piece string
	if err := json.Unmarshal(e.Delta[allowed[1]], &piece); err != nil || allowed[0] != b.Type || piece == "" {
		return fmt.Errorf("the delta does not fit the block, or is empty: %v", err)
	}
	if r.signed {
		return fmt.Errorf("something follows the signature")
	}
	r.grown = true
	switch kind {
	case "text_delta":
		*b.Text += piece
	case "thinking_delta":
		*b.Thinking += piece
	case "signature_delta":
		r.signed = true
		*b.Signature = piece
	case "input_json_delta":
		b.JSON += piece
	}
	return nil
}

func (r *reader) closeBlock(e *event) error {
	if !r.open || e.Index == nil || *e.Index != len(r.m.Content)-1 {
		return fmt.Errorf("it is not the open block's")
	}
	r.open = false
	b := &r.m.Content[*e.Index]
	switch {
	case b.Type == "thinking" && !r.signed:
		return fmt.Errorf("the thinking has no signature")
	case b.Type == "text" && !r.grown:
		return fmt.Errorf("the text is empty")
	}
	if b.JSON == "" {
		return nil
	}
	input, err := Partial(b.JSON)
	b.Input = input
	return err
}

func (r *reader) finish(e *event) error {
	if r.open || e.Usage == nil || len(e.Delta) != 2 || e.Delta["stop_sequence"] == nil {
		return fmt.Errorf("a block is open, or there is no usage, or the delta has not just its two members")
	}
	r.closing = true
	if err := json.Unmarshal(e.Delta["stop_reason"], &r.m.StopReason); err != nil {
		return err
	}
	if err := json.Unmarshal(e.Delta["stop_sequence"], &r.m.StopText); err != nil {
		return err
	}
	tier := r.m.Usage.Tier
	r.m.Usage = e.Usage
	r.m.Usage.Tier = tier
	return ending(&r.m)
}
