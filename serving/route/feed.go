package route

import (
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
)

// snapshotEvery bounds how often one unit's whole cache state is asked for.
const snapshotEvery = time.Second

// Feed keeps a router informed from the bus. Its connection should be one of its own: KV events come in bursts, and a
// slow reader is cut off by the server.
type Feed struct {
	router *Router
	bus    *bus.Bus
	clock  clock.Clock

	mu    sync.Mutex
	asked map[ids.ID]time.Time
	stops []func()
}

// Follow subscribes to load and KV facts and asks every hub for the whole state once.
func Follow(r *Router, b *bus.Bus, c clock.Clock) (*Feed, error) {
	f := &Feed{router: r, bus: b, clock: c, asked: map[ids.ID]time.Time{}}
	for _, subject := range []string{bus.FleetLoad, bus.FleetKV} {
		stop, err := b.Subscribe(subject, f.take)
		if err != nil {
			f.Stop()
			return nil, err
		}
		f.stops = append(f.stops, stop)
	}
	return f, b.Publish(bus.FleetSnapshot, nil)
}

// Stop ends the subscriptions; the bus stays open.
func (f *Feed) Stop() {
	for _, stop := range f.stops {
		stop()
	}
	f.stops = nil
}

func (f *Feed) take(_ string, data []byte) {
	var fact wire.Fact
	if err := json.Unmarshal(data, &fact); err != nil {
		slog.Warn("fleet fact cannot be read", "error", err)
		return
	}
	if f.router.Apply(fact) && f.mayAsk(fact.KV.Unit) {
		_ = f.bus.Publish(bus.FleetSnapshot, []byte(fact.KV.Unit.String())) // the next gap asks again
	}
}

func (f *Feed) mayAsk(unit ids.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	if now.Sub(f.asked[unit]) < snapshotEvery {
		return false
	}
	f.asked[unit] = now
	return true
}
