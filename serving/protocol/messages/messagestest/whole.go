package messagestest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

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
