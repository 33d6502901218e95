package inference_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/problem"
	"millrace/internal/ids"
)

func TestSessionsInHeaders(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"x-claude-code-session-id", "s1", "s1"}, {"session_id", "s2", "s2"}, {"x-session-id", "s3", "s3"}, {"x-session-affinity", "s4", "s4"},
		{"x-session-id", strings.Repeat("s", 300), ""}, {"x-request-id", "r", ""},
	} {
		h := http.Header{}
		h.Set(tt.name, tt.value)
		if got := inference.Session(h); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A panic is an error in the dialect's envelope, and the panic that cuts an answer off goes on.
func TestPanics(t *testing.T) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	serve := func(p any) (w *httptest.ResponseRecorder, passed any) {
		w = httptest.NewRecorder()
		defer func() { passed = recover() }()
		e := echo.New()
		e.Any("/", inference.Handle(func(http.ResponseWriter, *http.Request, ids.ID) error { panic(p) }, problem.Anthropic))
		e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		return w, nil
	}
	if w, passed := serve("oh"); passed != nil || w.Code != 500 || !strings.Contains(w.Body.String(), "api_error") || strings.Contains(w.Body.String(), "oh\"") {
		t.Errorf("%v: %d %s", passed, w.Code, w.Body)
	}
	if _, passed := serve(http.ErrAbortHandler); passed != http.ErrAbortHandler {
		t.Errorf("the cut became %v", passed)
	}
}
