package problem

import (
	"encoding/json"
	"strings"

	"millrace/internal/fault"
)

// anthropicError is an error as Anthropic's API has it. It has no member for what is wrong: the message begins with it.
type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id"`
}

// anthropicTypes gives each kind Anthropic's type.
var anthropicTypes = map[fault.Kind]string{
	fault.Internal:        "api_error",
	fault.Invalid:         "invalid_request_error",
	fault.Unauthenticated: "authentication_error",
	fault.OutOfCredit:     "billing_error",
	fault.Forbidden:       "permission_error",
	fault.NotFound:        "not_found_error",
	fault.Method:          "invalid_request_error",
	fault.Conflict:        "invalid_request_error",
	fault.TooLarge:        "request_too_large",
	fault.Unsupported:     "invalid_request_error",
	fault.Limited:         "rate_limit_error",
	fault.Upstream:        "api_error",
	fault.Unavailable:     "overloaded_error",
	fault.Timeout:         "timeout_error",
}

// statusOverloaded is Anthropic's own status for what is 503 elsewhere; its clients wait longer for it.
const statusOverloaded = 529

func anthropic(f *fault.Fault, requestID string) (any, string, int) {
	var body anthropicError
	body.Type, body.RequestID = "error", requestID
	body.Error.Type, body.Error.Message = anthropicTypes[f.Kind], anthropicMessage(f)
	status := f.Kind.Status()
	if f.Kind == fault.Unavailable {
		status = statusOverloaded
	}
	return body, "application/json", status
}

// anthropicMessage names the member as that API does: messages.3.content.1.type for messages[3].content[1].type.
func anthropicMessage(f *fault.Fault) string {
	if f.Param == "" || f.Kind != fault.Invalid || f.Code == CodeContext {
		return f.Message
	}
	return strings.NewReplacer("[", ".", "]", "").Replace(f.Param) + ": " + f.Message
}

// CodeContext is the code of faults about a prompt that is too long. Their messages have a form that clients read.
const CodeContext = "context_length_exceeded"

// AnthropicFrame is err as the JSON of an error event inside a stream that has begun.
func AnthropicFrame(err error, requestID string) []byte {
	body, _, _ := anthropic(Fault(err), requestID)
	text, _ := json.Marshal(body) // strings only: cannot fail
	return text
}
