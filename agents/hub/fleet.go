package hub

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
)

// Limits of the fleet's memory.
const (
	maxBlocks     = 4 << 20          // of one unit; what is above is not told to latecomers
	snapshotEvery = time.Second      // at most one whole state per unit in that time, however many ask
	forgetAfter   = 10 * time.Minute // a unit that nobody tells of any more
)

// fleet is the live state of units: those of hosts linked here, which this hub tells of, and what other hubs tell.
type fleet struct {
	bus   Bus
	clock clock.Clock
	log   *slog.Logger

	mu    sync.Mutex
	units map[ids.ID]*unit
}

type unit struct {
	load  wire.Load // the last that any hub told
	heard time.Time

	// Of a unit whose host is linked here.
	host  ids.ID
	own   wire.Load // the last that the host told
	told  time.Time // by the host
	cache *cache
}

// cache is what the unit's engine holds, to be told to latecomers. seq numbers what goes out on the bus.
type cache struct {
	engine    ids.ID
	head      ids.ID // the unit that answers for it
	blockSize int
	seq       int64
	held      map[uint64]struct{}
	whole     time.Time // when the whole state was last sent
	asked     bool      // and shall be again as soon as it may
}

func newFleet(b Bus, c clock.Clock, log *slog.Logger) *fleet {
	return &fleet{bus: b, clock: c, log: log, units: map[ids.ID]*unit{}}
}

func (f *fleet) unit(id ids.ID) *unit {
	u := f.units[id]
	if u == nil {
		u = &unit{}
		f.units[id] = u
	}
	return u
}

func (f *fleet) publish(subject string, fact wire.Fact) {
	text, err := json.Marshal(fact)
	if err == nil {
		err = f.bus.Publish(subject, text)
	}
	if err != nil {
		f.log.Warn("hub: a fact was not sent", "subject", subject, "error", err)
	}
}

// take handles a fact that a linked host tells, in order.
func (f *fleet) take(host ids.ID, fact wire.Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := fact.Load; l != nil {
		u := f.unit(l.Unit)
		u.host, u.own, u.told = host, *l, f.clock.Now()
		f.publish(bus.FleetLoad, fact)
	}
	if kv := fact.KV; kv != nil {
		f.takeKV(f.unit(kv.Unit), *kv)
	}
}

// takeKV keeps what a cache message changes, and passes it on under this hub's own numbers.
func (f *fleet) takeKV(u *unit, kv wire.KV) {
	c := u.cache
	if c == nil || c.engine != kv.Engine {
		if !kv.Reset {
			return // its beginning was missed: the host's next stream begins with it
		}
		c = &cache{engine: kv.Engine}
		u.cache = c
	}
	if kv.Reset {
		c.held = make(map[uint64]struct{}, len(kv.Stored))
	}
	c.blockSize, c.head = kv.BlockSize, kv.Head
	for _, h := range kv.Removed {
		delete(c.held, h)
	}
	for _, h := range kv.Stored {
		if len(c.held) < maxBlocks {
			c.held[h] = struct{}{}
		}
	}
	for _, part := range kv.Parts() {
		f.send(c, part)
	}
}

func (f *fleet) send(c *cache, kv wire.KV) {
	c.seq++
	kv.Seq = c.seq
	f.publish(bus.FleetKV, wire.Fact{KV: &kv})
}

// heard keeps what any hub tells of loads, this one included.
func (f *fleet) heard(_ string, data []byte) {
	var fact wire.Fact
	if json.Unmarshal(data, &fact) != nil || fact.Load == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.unit(fact.Load.Unit)
	u.load, u.heard = *fact.Load, f.clock.Now()
}

// asked sends whole states again: of one unit, or of all when the message is empty.
func (f *fleet) asked(_ string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(data) > 0 {
		id, err := ids.Parse(ids.Unit, string(data))
		if err != nil {
			return
		}
		if u := f.units[id]; u != nil {
			f.tellWhole(id, u)
		}
		return
	}
	for id, u := range f.units {
		f.tellWhole(id, u)
	}
}

// tellWhole sends a unit's load and cache. Who asks too early is served by the next round (silent).
func (f *fleet) tellWhole(id ids.ID, u *unit) {
	if u.host == ids.Nil {
		return
	}
	own := u.own
	f.publish(bus.FleetLoad, wire.Fact{Load: &own})
	c := u.cache
	if c == nil {
		return
	}
	now := f.clock.Now()
	if c.asked = now.Sub(c.whole) < snapshotEvery; c.asked {
		return
	}
	c.whole = now
	all := wire.KV{Unit: id, Engine: c.engine, Head: c.head, Reset: true, BlockSize: c.blockSize, Stored: make([]uint64, 0, len(c.held))}
	for h := range c.held {
		all.Stored = append(all.Stored, h)
	}
	for _, part := range all.Parts() {
		f.send(c, part)
	}
}

// linked marks a host's units as told by this hub again; they keep their last state until the host tells another.
func (f *fleet) linked(host ids.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	for _, u := range f.units {
		if u.host == host {
			u.told = now
		}
	}
}

// lost tells that a host's units are unknown: its link is gone. A unit that another hub told of meanwhile is left to it.
func (f *fleet) lost(host ids.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.units {
		if u.host == host {
			f.unknown(u)
		}
	}
}

func (f *fleet) unknown(u *unit) {
	elsewhere := !reflect.DeepEqual(u.load, u.own) && u.heard.After(u.told)
	own := u.own
	u.host, u.cache = ids.Nil, nil
	if elsewhere {
		return
	}
	own.State, own.AtMS = wire.StateUnknown, f.clock.Now().UnixMilli()
	f.publish(bus.FleetLoad, wire.Fact{Load: &own})
}

// silent tells of units whose hosts have said nothing for too long, serves those who asked too early, and forgets units
// that nobody tells of.
func (f *fleet) silent(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, u := range f.units {
		switch {
		case u.host != ids.Nil && now.Sub(u.told) >= wire.HostLostAfter:
			f.unknown(u)
		case u.host == ids.Nil && now.Sub(u.heard) >= forgetAfter:
			delete(f.units, id)
		case u.cache != nil && u.cache.asked && now.Sub(u.cache.whole) >= snapshotEvery:
			f.tellWhole(id, u)
		}
	}
}

func (f *fleet) one(id ids.ID) (LiveUnit, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.units[id]
	if u == nil || u.heard.IsZero() {
		return LiveUnit{}, false
	}
	return LiveUnit{Load: u.load, Heard: u.heard}, true
}

func (f *fleet) live() map[ids.ID]LiveUnit {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[ids.ID]LiveUnit, len(f.units))
	for id, u := range f.units {
		if u.heard.IsZero() {
			continue
		}
		l := LiveUnit{Load: u.load, Heard: u.heard}
		if u.cache != nil {
			l.Blocks = len(u.cache.held)
		}
		out[id] = l
	}
	return out
}
