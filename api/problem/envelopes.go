package problem

import (
	"encoding/json"
	"net/http"

	"millrace/internal/fault"
)

// openAIError is {"error": {...}}; param and code are null when there is nothing to say, as in OpenAI's own.
type openAIError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

// openAITypes gives each kind OpenAI's type and, for faults without one, a code.
var openAITypes = map[fault.Kind]struct{ typ, code string }{
	fault.Internal:        {"server_error", ""},
	fault.Invalid:         {"invalid_request_error", ""},
	fault.Unauthenticated: {"invalid_request_error", "invalid_api_key"},
	fault.OutOfCredit:     {"insufficient_quota", "insufficient_quota"},
	fault.Forbidden:       {"permission_error", "permission_denied"},
	fault.NotFound:        {"invalid_request_error", "not_found"},
	fault.Method:          {"invalid_request_error", "method_not_allowed"},
	fault.Conflict:        {"invalid_request_error", "conflict"},
	fault.TooLarge:        {"invalid_request_error", "request_too_large"},
	fault.Unsupported:     {"invalid_request_error", "unsupported_media_type"},
	fault.Limited:         {"rate_limit_error", "rate_limit_exceeded"},
	fault.Upstream:        {"server_error", "upstream_error"},
	fault.Unavailable:     {"server_error", "overloaded"},
	fault.Timeout:         {"server_error", "timeout"},
}

func openAI(f *fault.Fault, _ string) (any, string, int) {
	known := openAITypes[f.Kind]
	var body openAIError
	body.Error.Message, body.Error.Type = f.Message, known.typ
	if code := first(f.Code, known.code); code != "" {
		body.Error.Code = &code
	}
	if f.Param != "" {
		body.Error.Param = &f.Param
	}
	return body, "application/json", f.Kind.Status()
}

// OpenAIFrame is err as the JSON of an error frame inside a stream that has begun.
func OpenAIFrame(err error) []byte {
	body, _, _ := openAI(Fault(err), "")
	text, _ := json.Marshal(body) // strings only: cannot fail
	return text
}

// Problem is the control API's error (RFC 9457, without the type member: code says what it would).
type Problem struct {
	Status    int    `json:"status"`
	Title     string `json:"title"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Param     string `json:"param,omitempty"`
	RequestID string `json:"request_id"`
}

func problemJSON(f *fault.Fault, requestID string) (any, string, int) {
	return Problem{Status: f.Kind.Status(), Title: http.StatusText(f.Kind.Status()), Code: first(f.Code, f.Kind.String()),
		Detail: f.Message, Param: f.Param, RequestID: requestID}, "application/problem+json", f.Kind.Status()
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
