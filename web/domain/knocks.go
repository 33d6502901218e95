package domain

import (
	"sync"
	"time"

	"millrace/internal/clock"
	"millrace/internal/fault"
)

// Limits of asking for sign-in links.
const (
	knockWindow = 15 * time.Minute
	maxKnocks   = 20     // of one client within the window: an office has one address
	maxKnockers = 10_000 // clients remembered
)

// knocks counts what clients ask for. It forgets all of them when there are too many: a limit is no proof.
type knocks struct {
	clock clock.Clock
	mu    sync.Mutex
	since time.Time
	count map[string]int
}

func newKnocks(c clock.Clock) *knocks { return &knocks{clock: c, count: map[string]int{}} }

// knock refuses a client that came too often in the running window.
func (k *knocks) knock(client string) error {
	now := k.clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.since) >= knockWindow || len(k.count) >= maxKnockers {
		k.since = now
		clear(k.count)
	}
	k.count[client]++
	if k.count[client] > maxKnocks {
		return fault.New(fault.Limited, "Too many sign-in links were asked for from here. Try again later.").
			WithCode("too_many_links").WithRetryAfter(knockWindow - now.Sub(k.since))
	}
	return nil
}
