package inference_test

import (
	"net/http"
	"strings"
	"testing"

	"millrace/api/inference"
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
