package report

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/clock"
)

// Subscriber hears notices: *bus.Bus.
type Subscriber interface {
	Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error)
}

// Lag remembers what the rater says about being behind.
type Lag struct {
	clock clock.Clock
	stop  func()

	mu    sync.Mutex
	said  time.Duration
	heard time.Time
}

// speaks is how often the rater says it, with some slack.
const speaks = 3 * time.Second

// ListenForLag hears the rater until Close.
func ListenForLag(notices Subscriber, c clock.Clock) (*Lag, error) {
	l := &Lag{clock: c}
	stop, err := notices.Subscribe(bus.NoticeLag, l.hear)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	l.stop = stop
	return l, nil
}

// Close stops listening.
func (l *Lag) Close() { l.stop() }

func (l *Lag) hear(_ string, data []byte) {
	var said usagelog.Lag
	if json.Unmarshal(data, &said) != nil || said.MS < 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said, l.heard = milliseconds(said.MS), l.clock.Now()
}

// Now is the age of the oldest event that is not rated, 0 when there is none. A rater that has fallen silent may have left
// anything unrated since. known is false while none was heard.
func (l *Lag) Now() (lag time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard.IsZero() {
		return 0, false
	}
	if silent := l.clock.Now().Sub(l.heard); silent > speaks {
		return l.said + silent, true
	}
	return l.said, true
}
