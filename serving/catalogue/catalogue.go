// Package catalogue knows which models customers may call and which units serve each. It owns models, attached units and
// the snapshot of both that every request reads; it does not own prices, placement (who puts units on hosts), a unit's
// health or load (serving/route), or what is said to an engine.
//
// Words. Attached unit: an engine or provider that someone already runs, reached by its URL, without an agent. Placed
// unit: an engine on a host of ours, reached through the host's agent. Part: an engine of a unit that several serve together;
// only the whole unit is one of the model's.
//
// Invariants: a snapshot is swapped whole and never changed; while the database is away the last one stays; an upstream's
// key is sealed in the database, open only in memory, and shown to nobody; a unit that did not change keeps its
// connections over a swap.
package catalogue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// Times of the snapshot.
const (
	pollInterval = 10 * time.Second // a lost notice costs at most this
	loadTimeout  = 5 * time.Second
)

// Model is a public name that customers call. It is never changed: a newer snapshot has newer models.
type Model struct {
	ID            ids.ID
	Name          string
	DisplayName   string
	Context       int64 // tokens of prompt and answer together
	MaxOutput     int64 // tokens
	DefaultOutput int64 // tokens held when a request names no maximum
	Free          bool
	Extras        []string // members that only some engines know and that customers may send
	Created       time.Time
	Units         []*Unit // those that may get requests; may be empty
}

// Database is what the catalogue needs of one: *db.DB.
type Database interface {
	InTx(ctx context.Context, s db.Scope, fn func(tx pgx.Tx) error) error
}

// Bus carries notices: *bus.Bus.
type Bus interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error)
}

// Sealer seals upstream keys: *seal.Master.
type Sealer interface {
	Seal(plain []byte, context string) []byte
	Open(sealed []byte, context string) ([]byte, error)
}

// Options of a catalogue.
type Options struct {
	DB       Database
	Bus      Bus
	Sealer   Sealer
	Clock    clock.Clock
	DialHost DialHost          // connections to agents
	Gone     func(unit ids.ID) // called for each unit that left the snapshot; may be nil
}

// Catalogue is safe for concurrent use. Load it once before use; Run keeps it fresh.
type Catalogue struct {
	o    Options
	snap atomic.Pointer[snapshot]
	wake chan struct{}
	load sync.Mutex // one at a time, so that snapshots come in order
}

type snapshot struct {
	byName map[string]*Model
	models []*Model
	units  map[ids.ID]*Unit
}

// New makes an empty catalogue.
func New(o Options) *Catalogue {
	c := &Catalogue{o: o, wake: make(chan struct{}, 1)}
	c.snap.Store(&snapshot{})
	return c
}

// Model finds a model by its public name.
func (c *Catalogue) Model(name string) (*Model, bool) {
	m, ok := c.snap.Load().byName[name]
	return m, ok
}

// Models lists the models by name.
func (c *Catalogue) Models() []*Model { return c.snap.Load().models }

// Unit finds a unit that may get requests.
func (c *Catalogue) Unit(id ids.ID) (*Unit, bool) {
	u, ok := c.snap.Load().units[id]
	return u, ok
}

// Run looks again on every notice and every 10 s until ctx ends, then closes idle connections.
func (c *Catalogue) Run(ctx context.Context) error {
	stop, err := c.o.Bus.Subscribe(bus.NoticeCatalogue, func(string, []byte) { c.nudge() })
	if err != nil {
		return err
	}
	defer stop()
	defer func() {
		for _, u := range c.snap.Load().units {
			u.close()
		}
	}()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-c.wake:
		}
		if err := c.Load(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("catalogue: cannot be read; the last one stays in use", "cause", err)
		}
	}
}

func (c *Catalogue) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// changed tells this process at once and the others by the bus.
func (c *Catalogue) changed(ctx context.Context) {
	if err := c.o.Bus.Publish(bus.NoticeCatalogue, nil); err != nil {
		slog.Warn("catalogue: notice not sent; other gateways see the change at their next poll", "cause", err)
	}
	if err := c.Load(ctx); err != nil {
		c.nudge()
	}
}

// Load reads models and units and swaps the snapshot.
func (c *Catalogue) Load(ctx context.Context) error {
	c.load.Lock()
	defer c.load.Unlock()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var models []q.Model
	var units []q.CatalogueUnitsRow
	err := c.o.DB.InTx(ctx, db.System().ReadOnly().Snapshot(), func(tx pgx.Tx) (err error) {
		if models, err = q.New(tx).CatalogueModels(ctx); err != nil {
			return err
		}
		units, err = q.New(tx).CatalogueUnits(ctx)
		return err
	})
	if err != nil {
		return err
	}
	old := c.snap.Load()
	c.snap.Store(c.build(old, models, units))
	c.retire(old)
	return nil
}

func (c *Catalogue) build(old *snapshot, models []q.Model, units []q.CatalogueUnitsRow) *snapshot {
	s := &snapshot{byName: make(map[string]*Model, len(models)), units: make(map[ids.ID]*Unit, len(units))}
	byID := make(map[ids.ID]*Model, len(models))
	for _, m := range models {
		model := &Model{ID: m.ID, Name: m.Name, DisplayName: m.DisplayName, Context: m.ContextTokens, MaxOutput: m.MaxOutputTokens,
			DefaultOutput: m.DefaultOutput, Free: m.Free, Extras: extras(m.EngineExtras), Created: m.CreatedAt}
		s.models = append(s.models, model)
		s.byName[m.Name], byID[m.ID] = model, model
	}
	for i := range units {
		row := &units[i]
		model := byID[row.ModelID]
		if model == nil || row.Parts > 0 {
			continue // retired; or in parts, which come first
		}
		u := old.units[row.ID]
		if u == nil || u.key != keyOf(row) {
			var err error
			if u, err = c.newUnit(row); err != nil {
				slog.Error("catalogue: a unit cannot be used", "unit", row.Name, "cause", err)
				continue
			}
		}
		s.units[u.ID] = u
		if u.Role == engine.Whole {
			model.Units = append(model.Units, u)
		}
	}
	c.join(old, s, byID, units)
	return s
}

// retire closes what the new snapshot no longer holds. Running requests keep their connections to their end.
func (c *Catalogue) retire(old *snapshot) {
	now := c.snap.Load()
	for id, u := range old.units {
		if now.units[id] != u {
			u.close()
		}
		if now.units[id] == nil && c.o.Gone != nil {
			c.o.Gone(id)
		}
	}
}

var errNoDialer = errors.New("catalogue: no way to reach hosts")
