package rate

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/ids"
)

// How often the rater speaks.
const (
	nudgeInterval = 100 * time.Millisecond // to one organization's pages
	lagInterval   = time.Second
)

// voice tells open pages that something was rated, and gateways how far behind the rater is. It is never waited for.
type voice struct {
	cfg    Config
	meters *meters
	wake   chan struct{}

	mu     sync.Mutex
	active bool      // this rater works, so its lag means something
	oldest time.Time // of the messages that are not rated; zero = none
	orgs   map[ids.ID]bool
}

func newVoice(c Config, m *meters) *voice {
	return &voice{cfg: c, meters: m, wake: make(chan struct{}, 1), orgs: map[ids.ID]bool{}}
}

func (v *voice) caughtUp() { v.set(true, time.Time{}) }

func (v *voice) behind(oldest time.Time) { v.set(true, oldest) }

func (v *voice) silence() { v.set(false, time.Time{}) }

func (v *voice) set(active bool, oldest time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.active, v.oldest = active, oldest
}

// tell notes whose pages are stale.
func (v *voice) tell(booked []*entry) {
	v.mu.Lock()
	for _, e := range booked {
		v.orgs[e.ev.Org] = true
	}
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *voice) run(ctx context.Context) {
	lag := time.NewTicker(lagInterval)
	defer lag.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-lag.C:
			v.sayLag()
		case <-v.wake:
			v.nudge()
			sleep(ctx, nudgeInterval)
		}
	}
}

func (v *voice) nudge() {
	v.mu.Lock()
	orgs := v.orgs
	v.orgs = map[ids.ID]bool{}
	v.mu.Unlock()
	for org := range maps.Keys(orgs) {
		if err := v.cfg.Bus.Publish(bus.LivePrefix+hex.EncodeToString(org[:]), nil); err != nil {
			return // pages look again by themselves
		}
	}
	if len(orgs) > 0 {
		_ = v.cfg.Bus.Publish(bus.LiveOperator, nil)
	}
}

func (v *voice) sayLag() {
	v.mu.Lock()
	active, oldest := v.active, v.oldest
	v.mu.Unlock()
	if !active {
		return
	}
	lag := time.Duration(0)
	if !oldest.IsZero() {
		lag = max(0, v.cfg.Clock.Now().Sub(oldest))
	}
	v.meters.lag.Set(lag.Seconds())
	text, err := json.Marshal(usagelog.Lag{MS: lag.Milliseconds()})
	if err == nil {
		_ = v.cfg.Bus.Publish(bus.NoticeLag, text) // the next one follows in a second
	}
}
