// Package hub is the control side of agents: it lets hosts join, keeps a link to each, tells them what to run, fans out
// what they tell to every gateway, and stores their journals.
//
// It owns hosts, join tokens and placed units' desired state in the database, and the live state of the fleet in memory;
// it does not own the agents' work (agents/host), which unit serves a request (serving/route), models or attached units
// (serving/catalogue), or money.
//
// Fleet facts. FleetLoad and FleetKV carry wire.Fact as JSON, one per message, in order per unit. The first KV message
// that a hub sends of an engine process has Reset; after it Seq grows by one per message. Who missed messages, or came
// late, publishes a unit's id (or nothing, for all) on FleetSnapshot: the hub that has the host's link then sends the
// unit's whole state again, with Reset, on the same subject and in the same order, so that readers need no second way.
//
// Invariants: a token joins one host once, and ends the host's identities from before; a host speaks for itself only, by its certificate; a unit whose host's link is
// gone for LinkGrace is told to be unknown, unless another hub has it; storing a journal twice changes nothing; several
// hubs may run at once.
package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/release"
	"millrace/agents/wire"
	"millrace/db"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/catalogue"
)

// Database is what a hub needs of one: *db.DB.
type Database interface {
	InTx(ctx context.Context, s db.Scope, fn func(tx pgx.Tx) error) error
}

// Bus carries facts and notices: *bus.Bus, a connection of its own.
type Bus interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error)
}

// Config is what a hub works with.
type Config struct {
	DB    Database
	Bus   Bus
	CA    *pki.CA
	Clock clock.Clock
	Log   *slog.Logger
	// Attached gives the units to probe: engines without an agent. nil = none.
	Attached func() []*catalogue.Unit
	// Programs are the releases of the agent that hosts may follow; nil = none.
	Programs *release.Folder
}

// Times of a hub.
const (
	lookEvery    = time.Second            // for desired state that moved without a notice
	seeEvery     = 5 * time.Second        // between marks that linked hosts are alive
	watchEvery   = 250 * time.Millisecond // for links that broke and hosts that fell silent
	queryTimeout = 10 * time.Second
)

// Hub is safe for concurrent use. Run must run for it to work.
type Hub struct {
	cfg      Config
	trust    *pki.Trust
	fleet    *fleet
	peers    peers
	gateways *gateways
	refusals refusals

	mu    sync.Mutex
	links map[ids.ID]*hostLink // the newest per host
	look  chan struct{}        // capacity 1: desired state may have moved
	alive sync.WaitGroup       // links' handlers
	gone  bool
}

// New makes a hub.
func New(cfg Config) *Hub {
	if cfg.Clock == nil {
		cfg.Clock = clock.System
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Hub{cfg: cfg, trust: cfg.CA.Trust(), fleet: newFleet(cfg.Bus, cfg.Clock, cfg.Log),
		gateways: newGateways(), links: map[ids.ID]*hostLink{}, look: make(chan struct{}, 1)}
}

// Handler is what agents dial: joining, renewing, linking. It must be served with pki.Trust.HubServer
// settings, by Guard.
func (h *Hub) Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST "+wire.PathJoin, soon(h.answer(h.join)))
	m.HandleFunc("POST "+wire.PathRenew, soon(h.answer(h.renew)))
	m.HandleFunc("GET "+wire.PathLink, h.accept)
	return m
}

// Run does the hub's own work until ctx ends, then breaks every link and waits for it.
func (h *Hub) Run(ctx context.Context) error {
	stops, err := h.subscribe()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	work.Go(func() { h.watch(ctx) })
	work.Go(func() { h.lookAgain(ctx) })
	if h.cfg.Attached != nil {
		p := &prober{hub: h, running: map[ids.ID]*probing{}}
		work.Go(func() { p.run(ctx) })
	}
	<-ctx.Done()
	h.breakLinks()
	work.Wait()
	h.alive.Wait()
	return ctx.Err()
}

func (h *Hub) subscribe() (stops []func(), err error) {
	for subject, fn := range map[string]func(string, []byte){
		bus.FleetLoad:       h.fleet.heard,
		bus.FleetSnapshot:   h.fleet.asked,
		bus.FleetGateways:   h.gatewayHeard,
		bus.NoticeCatalogue: func(string, []byte) { h.nudge() },
	} {
		stop, err := h.cfg.Bus.Subscribe(subject, fn)
		if err != nil {
			return stops, err
		}
		stops = append(stops, stop)
	}
	return stops, nil
}

func (h *Hub) nudge() {
	select {
	case h.look <- struct{}{}:
	default:
	}
}

// inTx runs a short transaction as the system.
func (h *Hub) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return h.cfg.DB.InTx(ctx, db.System(), fn)
}

// Live is the fleet as it is now: every unit that any hub tells of, and the hosts linked to this one.
type Live struct {
	Units map[ids.ID]LiveUnit
	Links map[ids.ID]time.Time // host to since when
}

// LiveUnit is a unit's last load.
type LiveUnit struct {
	Load   wire.Load
	Heard  time.Time
	Blocks int // prefix blocks its engine holds, when its host is linked to this hub
}

// Live gives a copy.
func (h *Hub) Live() Live {
	l := Live{Units: h.fleet.live(), Links: map[ids.ID]time.Time{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, link := range h.links {
		if link.link != nil {
			l.Links[id] = link.since
		}
	}
	return l
}

// LiveUnit gives one unit; false when nobody has told of it.
func (h *Hub) LiveUnit(id ids.ID) (LiveUnit, bool) { return h.fleet.one(id) }

var errRemoved = errors.New("hub: the host was removed")
