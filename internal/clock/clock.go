// Package clock injects time. Domain code asks a Clock, never the time package, so that tests can hold and move time.
// Inside testing/synctest the System clock already runs on the bubble's fake time.
package clock

import (
	"sync"
	"time"
)

// Clock tells the time. Now carries a monotonic reading when it comes from System, so differences never jump.
type Clock interface {
	Now() time.Time
}

// System is the machine's clock.
var System Clock = system{}

type system struct{}

func (system) Now() time.Time { return time.Now() }

// Manual is a clock that moves only when told. The zero value is not usable: call NewManual.
type Manual struct {
	mu  sync.Mutex
	now time.Time
}

// NewManual starts a manual clock at t.
func NewManual(t time.Time) *Manual { return &Manual{now: t} }

// Now is the held time.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Advance moves the clock by d.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}
