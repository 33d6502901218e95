package problem

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
)

func TestErrorsAsAnthropicHasThem(t *testing.T) {
	for _, tt := range []struct {
		err     error
		status  int
		kind    string
		message string
	}{
		{fault.New(fault.Invalid, "Field required.").WithParam("messages[3].content[1].type"), 400, "invalid_request_error", "messages.3.content.1.type: Field required."},
		{fault.New(fault.Invalid, "prompt is too long: 9 tokens > 8 maximum").WithParam("messages").WithCode(CodeContext), 400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"},
		{fault.New(fault.Unauthenticated, "No key."), 401, "authentication_error", "No key."},
		{fault.New(fault.OutOfCredit, "No money."), 402, "billing_error", "No money."},
		{fault.New(fault.Forbidden, "No."), 403, "permission_error", "No."},
		{fault.New(fault.NotFound, "None.").WithParam("model"), 404, "not_found_error", "None."},
		{echo.ErrNotFound, 404, "not_found_error", "There is nothing at this path."},
		{fault.New(fault.Method, "No."), 405, "invalid_request_error", "No."},
		{fault.New(fault.Conflict, "No."), 409, "invalid_request_error", "No."},
		{&http.MaxBytesError{Limit: 10}, 413, "request_too_large", "The request body is larger than 10 bytes."},
		{fault.New(fault.Unsupported, "No."), 415, "invalid_request_error", "No."},
		{fault.New(fault.Limited, "Slow."), 429, "rate_limit_error", "Slow."},
		{errors.New(secretDetail), 500, "api_error", "Something went wrong on our side. The error has been logged."},
		{fault.New(fault.Upstream, "Broke."), 502, "api_error", "Broke."},
		{fault.New(fault.Unavailable, "Busy."), 529, "overloaded_error", "Busy."},
		{fault.New(fault.Timeout, "Late."), 504, "timeout_error", "Late."},
	} {
		w := httptest.NewRecorder()
		Anthropic(w, httptest.NewRequest("POST", "/v1/messages", nil), tt.err)
		var got anthropicError
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		want := anthropicError{Type: "error", RequestID: w.Header().Get("request-id")}
		want.Error.Type, want.Error.Message = tt.kind, tt.message
		if got != want || w.Code != tt.status || got.RequestID == "" || got.RequestID != w.Header().Get(HeaderRequestID) {
			t.Errorf("%v: %d %s", tt.err, w.Code, w.Body)
		}
		if frame := string(AnthropicFrame(tt.err, got.RequestID)) + "\n"; frame != w.Body.String() {
			t.Errorf("in a stream: %s", frame)
		}
	}
	for kind := fault.Internal; kind <= fault.Timeout; kind++ {
		if anthropicTypes[kind] == "" {
			t.Errorf("%v has no type", kind)
		}
	}
}
