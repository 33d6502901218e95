package engine_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"millrace/serving/engine"
)

func TestAKeyIsForItsEngineAlone(t *testing.T) {
	var strangers atomic.Int64
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	defer stranger.Close()
	var shown atomic.Value
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Store(r.Header.Get("Authorization"))
		http.Redirect(w, r, stranger.URL, http.StatusTemporaryRedirect)
	}))
	defer own.Close()
	if offers, err := engine.Offers(t.Context(), engine.Keyed("sk-1"), own.URL); err == nil {
		t.Errorf("a redirect offers %v", offers)
	}
	if shown.Load() != "Bearer sk-1" || strangers.Load() != 0 {
		t.Errorf("the engine was shown %q; %d requests went elsewhere", shown.Load(), strangers.Load())
	}
}
