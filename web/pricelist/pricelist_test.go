package pricelist_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/usage"
	"millrace/web/pricelist"
	"millrace/web/ui"
)

// shop counts how often it is asked.
type shop struct {
	asked  atomic.Int64
	broken bool
}

func (s *shop) PublicPrices(context.Context) ([]pricelist.Model, error) {
	s.asked.Add(1)
	if s.broken {
		return nil, errors.New("away")
	}
	return []pricelist.Model{{Name: "acme/<llama>", Context: 131_072, Prices: usage.Prices{usage.Input: 150_000, usage.Output: 600_000},
		Terms: ui.PriceTerms{Steps: []usage.Step{{Above: 32_000, Prices: usage.Prices{usage.Input: 300_000, usage.Output: 1_200_000}}}, Priority: 175,
			Windows: []ui.PriceWindow{{Days: []string{"sat", "sun"}, From: "00:00", To: "06:00", Percent: 50}}},
		Next: &pricelist.Ahead{Prices: usage.Prices{usage.Input: 120_000}, Effective: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}}}, nil
}

func get(h http.Handler, method string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, pricelist.Path, nil))
	return w
}

// Anyone may read the page and any cache may keep it; a crowd asks the database once.
func TestThePageIsPublicAndKept(t *testing.T) {
	s, c := &shop{}, clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	h := pricelist.New(s, c, slog.New(slog.DiscardHandler))
	w := get(h, "GET")
	body := w.Body.String()
	if w.Code != 200 || w.Header().Get("Cache-Control") != "public, max-age=30" || len(w.Result().Cookies()) != 0 {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for _, want := range []string{"acme/&lt;llama&gt;", "$0.15", "$0.60", "prompts up to 32,000 tokens", "prompts above 32,000 tokens", "$1.20",
		"Sat and Sun 00:00–06:00 UTC: 50 %", "priority", "175 %", "From 1 January 2027 00:00 UTC: input $0.12"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for range 50 {
		get(h, "HEAD")
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the reader was asked %d times", n)
	}
	c.Advance(pricelist.Fresh)
	if get(h, "GET"); s.asked.Load() != 2 {
		t.Errorf("a new price would never show: asked %d times", s.asked.Load())
	}
	if w := get(h, "POST"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// A failure is said, and kept by nobody.
// A failure stands for seconds, so that nobody's waiting makes it worse.
func TestAFailureIsNotKeptForLong(t *testing.T) {
	s := &shop{broken: true}
	c := clock.NewManual(time.Now())
	h := pricelist.New(s, c, slog.New(slog.DiscardHandler))
	if w := get(h, "GET"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	s.broken = false
	if w := get(h, "GET"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d at once", w.Code)
	}
	c.Advance(6 * time.Second)
	if w := get(h, "GET"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
