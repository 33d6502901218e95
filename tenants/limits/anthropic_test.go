package limits

import (
	"net/http"
	"testing"

	"millrace/internal/clock"
	"millrace/internal/ids"
)

func TestAnthropicHeaders(t *testing.T) {
	l := New(clock.NewManual(start))
	lease, err := l.Take(ids.New(), Limits{RPM: 60, TPM: 6000}, 1500)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	lease.AnthropicHeaders(h)
	for name, want := range map[string]string{
		"anthropic-ratelimit-requests-limit": "60", "anthropic-ratelimit-requests-remaining": "59", "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:01Z",
		"anthropic-ratelimit-tokens-limit": "6000", "anthropic-ratelimit-tokens-remaining": "4500", "anthropic-ratelimit-tokens-reset": "2026-11-30T12:00:15Z",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	free := Lease{}
	h = http.Header{}
	if free.AnthropicHeaders(h); len(h) != 0 {
		t.Errorf("a key without limits: %v", h)
	}
}
