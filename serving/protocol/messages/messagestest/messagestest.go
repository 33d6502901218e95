// Package messagestest checks answers in the shape of Anthropic's Messages API as the strictest client would, and puts
// streams together as official clients do, so that tests of every layer hold to the same rules. It shares no code with the
// writers of such answers.
package messagestest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
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

// Whole reads an answer that was given whole.
func Whole(body []byte) (*Message, error) {
	m := &Message{}
	if err := strict(body, m, "id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"); err != nil {
		return m, err
	}
	if m.Content == nil {
		return m, fmt.Errorf("no content")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members["stop_sequence"] == nil {
		return m, fmt.Errorf("no stop_sequence: %v", err)
	}
	for i, b := range m.Content {
		switch {
		case b.Type == "text" && b.Text != nil && *b.Text != "":
		case b.Type == "thinking" && b.Thinking != nil && b.Signature != nil && *b.Signature != "":
		case b.Type == "tool_use" && b.ID != "" && b.Name != "" && len(b.Input) > 0 && b.Input[0] == '{':
		default:
			return m, fmt.Errorf("block %d is no good: %s", i, body)
		}
	}
	if err := head(m); err != nil {
		return m, err
	}
	return m, ending(m)
}

func head(m *Message) error {
	if !strings.HasPrefix(m.ID, "msg_") || m.Type != "message" || m.Role != "assistant" || m.Model == "" || m.Usage == nil || m.Usage.Tier != "standard" {
		return fmt.Errorf("id, type, role, model or usage is wrong")
	}
	return nil
}

func ending(m *Message) error {
	u := m.Usage
	for _, n := range []*int64{u.Input, u.CacheWrite, u.CacheRead, u.Output} {
		if n == nil || *n < 0 {
			return fmt.Errorf("a count is missing or negative")
		}
	}
	if m.StopReason == nil || !slices.Contains([]string{"end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"}, *m.StopReason) {
		return fmt.Errorf("an unknown stop_reason")
	}
	if (*m.StopReason == "stop_sequence") != (m.StopText != nil) {
		return fmt.Errorf("stop_sequence does not fit the stop_reason")
	}
	if used := slices.ContainsFunc(m.Content, func(b Block) bool { return b.Type == "tool_use" }); *m.StopReason == "tool_use" && !used {
		return fmt.Errorf("tool_use without a call")
	}
	return nil
}

// ErrorBody reads an error that is an answer by itself.
func ErrorBody(body []byte) (*Error, error) {
	var e struct {
		Error   *Error
		Request string `json:"request_id"`
	}
	if err := errorShape(body); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, err
	}
	e.Error.Request = e.Request
	return e.Error, nil
}

// errorTypes are those that clients know.
var errorTypes = []string{"invalid_request_error", "authentication_error", "billing_error", "permission_error", "not_found_error",
	"request_too_large", "rate_limit_error", "api_error", "overloaded_error", "timeout_error"}

func errorShape(data []byte) error {
	var e struct {
		Type    string
		Error   map[string]string
		Request *string `json:"request_id"`
	}
	if err := strict(data, &e, "type", "error", "request_id"); err != nil {
		return err
	}
	if e.Type != "error" || len(e.Error) != 2 || e.Error["message"] == "" || !slices.Contains(errorTypes, e.Error["type"]) || e.Request == nil || *e.Request == "" {
		return fmt.Errorf("no error as Anthropic has it: %s", data)
	}
	return nil
}

// Partial gives the object that text begins, as official clients' parsers do: what is not finished is left out, but for a
// number at the very end.
func Partial(text string) (json.RawMessage, error) {
	for cut := len(text); cut > 0; cut-- {
		if cut < len(text) && !strings.Contains(`{}[],"el`, text[cut-1:cut]) && !strings.Contains(`,]}`, text[cut:cut+1]) {
			continue // inside of a number
		}
		closed, ok := closeAll(strings.TrimRight(text[:cut], " \n\r\t,"))
		var object map[string]any
		if ok && json.Unmarshal([]byte(closed), &object) == nil {
			return json.RawMessage(closed), nil
		}
	}
	return nil, fmt.Errorf("%q is not the beginning of an object", text)
}

// closeAll closes the containers that are open; false inside of a string.
func closeAll(text string) (string, bool) {
	var ends []byte
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			ends = append(ends, '}')
		case c == '[':
			ends = append(ends, ']')
		case c == '}' || c == ']':
			if len(ends) == 0 {
				return "", false
			}
			ends = ends[:len(ends)-1]
		}
	}
	slices.Reverse(ends)
	return text + string(ends), !quoted
}

// Same reports whether two answers say the same, whatever their ids and signatures. Calls' ids count.
func Same(a, b *Message) bool {
	return reflect.DeepEqual(comparable(a), comparable(b)) && reflect.DeepEqual(a.StopReason, b.StopReason) && reflect.DeepEqual(a.StopText, b.StopText)
}

func comparable(m *Message) []any {
	out := []any{}
	for _, b := range m.Content {
		var input any
		_ = json.Unmarshal(b.Input, &input) // text and thinking have none
		text := func(s *string) string {
			if s == nil {
				return ""
			}
			return *s
		}
		out = append(out, []any{b.Type, text(b.Text), text(b.Thinking), b.ID, b.Name, input})
	}
	return out
}

// strict decodes an object that has no other members than those named.
func strict(data []byte, into any, names ...string) error {
	if err := only(data, names...); err != nil {
		return err
	}
	return json.NewDecoder(bytes.NewReader(data)).Decode(into)
}

func only(data []byte, names ...string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	for name := range members {
		if !slices.Contains(names, name) {
			return fmt.Errorf("the member %q leaks", name)
		}
	}
	return nil
}
