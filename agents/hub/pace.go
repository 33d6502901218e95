package hub

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// A linked host makes a few calls a second. One that makes more waits: what it costs the database is bounded, and a long
// journal still gets through.
const (
	callStep  = 20 * time.Millisecond // between calls in the long run
	callBurst = 100                   // calls that need not wait
)

// pace spreads one link's calls.
type pace struct {
	mu   sync.Mutex
	next time.Time
}

func (p *pace) wait(ctx context.Context) bool {
	p.mu.Lock()
	now := time.Now()
	if first := now.Add(-callBurst * callStep); p.next.Before(first) {
		p.next = first
	}
	p.next = p.next.Add(callStep)
	pause := p.next.Sub(now)
	p.mu.Unlock()
	return pause <= 0 || sleep(ctx, pause)
}

func (p *pace) paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.wait(r.Context()) {
			next.ServeHTTP(w, r)
		}
	})
}
