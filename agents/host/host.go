// Package host is the agent: one per machine with accelerators. It joins its hub once, keeps a link to it, runs the
// engines that the hub desires, carries gateways' requests to them, and tells what it sees.
//
// It owns the machine's data folder: identity, desired state, engines' folders, journal. It does not own what should run
// here (the hub does), prices, customers or the database: it imports none of them.
//
// Invariants: desired state survives restarts and a hub that is away; repeating any message to the hub is harmless; a
// host trusts no hub whose authority its join token does not name; when told to stop it first refuses new work, then
// lets running work end, then stops engines unless the next agent is to adopt them, then ships its journal.
package host

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"millrace/agents/host/engines"
	"millrace/agents/host/facts"
	"millrace/agents/host/journal"
	"millrace/agents/host/relay"
	"millrace/agents/host/update"
	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/datafolder"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// Config is what an agent is started with.
type Config struct {
	Hub          string           // https://host:port of the hub's agent listener
	Join         string           // one-time token; needed while there is no identity in Data
	Proxy        string           // way to the hub; "" = the environment\'s HTTPS_PROXY
	Data         string           // folder that this agent owns
	DataListen   string           // address of the data plane; "" = none: gateways reach this host through the link
	DataURL      string           // what gateways dial; "" = the listener's own address as the hub's network sees it
	Inventory    string           // JSON file that replaces detection, read again and again; the host is then shown as simulated
	DieWithAgent bool             // engines are killed by the kernel when this process dies, however it dies
	FabricListen string           // address at which other hosts measure the way to this one; AutoFabric; "" = they do not
	Channel      string           // of releases that Program follows
	Program      *update.Program  `json:"-"` // this program, when it may be exchanged; nil = by hand
	UpdateSpread time.Duration    // in which this host follows its channel, at a moment of its own; 0 = at once
	KeepEngines  bool             // engines outlive this process, and the next one adopts them
	Runtime      *engines.Runtime `json:"-"` // for engines in containers; nil = there are none
	Drain        time.Duration
	Version      string
	Clock        clock.Clock  // nil = the system's
	Log          *slog.Logger // nil = slog.Default
}

// Times of stopping.
const (
	DefaultDrain = 30 * time.Second
	stopMargin   = 20 * time.Second // beyond the drain, for engines to end
	flushLimit   = 5 * time.Second  // to ship the rest of the journal
	lookLimit    = 30 * time.Second // for the first look: GPUs that hang are found by the next ones
	settleLimit  = 10 * time.Second // for adopted engines to prove themselves
)

// Run is the agent's life: until ctx ends, and then until everything has been brought to an end in order. An error means
// that it could not work at all: a refused token, a folder in use, a busy port.
func Run(ctx context.Context, cfg Config) error {
	cfg.defaults()
	folder, err := datafolder.Open(cfg.Data)
	if err != nil {
		return err
	}
	defer folder.Close()
	a := &agent{cfg: cfg, folder: folder, log: cfg.Log, board: facts.NewBoard(), updating: updating{done: make(chan struct{})}}
	if a.proxy, err = proxyFor(cfg.Proxy); err != nil {
		return err
	}
	if a.eye, err = openEye(&cfg, folder); err != nil {
		return err
	}
	if err := a.identify(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before its hub was there
		}
		return err
	}
	if a.journal, err = journal.Open(folder.Path("journal"), cfg.Clock, cfg.Log); err != nil {
		return err
	}
	defer a.journal.Close()
	a.engines, err = engines.New(engines.Config{
		Dir: folder.Path("engines"), DieWithAgent: cfg.DieWithAgent, Drain: cfg.Drain, Clock: cfg.Clock, Log: cfg.Log, Board: a.board,
		Keep: cfg.KeepEngines, Runtime: cfg.Runtime, Device: a.eye.device,
		Client: func(unit ids.ID, d engine.Driver) *http.Client { return relay.Probe(a.journal, unit, d.UsageMark()) },
	})
	if err != nil {
		return err
	}
	a.relay = relay.New(a.engines, a.journal, cfg.Log)
	return a.run(ctx)
}

func (cfg *Config) defaults() {
	if cfg.Clock == nil {
		cfg.Clock = clock.System
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Drain <= 0 {
		cfg.Drain = DefaultDrain
	}
}

// agent is a running agent.
type agent struct {
	cfg     Config
	folder  *datafolder.Folder
	log     *slog.Logger
	self    *identity
	token   *wire.JoinToken // not used yet
	proxy   link.Proxy
	board   *facts.Board
	journal *journal.Journal
	engines *engines.Supervisor
	relay   *relay.Relay
	eye     *eye
	links   *links
	dataURL string

	desired  desired
	renewing sync.Mutex
	updating updating
	gateways gateways

	mu   sync.Mutex
	link *http.Client // to the hub, nil while there is no link
}

func (a *agent) run(ctx context.Context) error {
	plane, err := a.listen()
	if err != nil {
		a.engines.Stop(context.Background())
		return err
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		ctx, enough := context.WithTimeout(ctx, lookLimit)
		defer enough()
		a.eye.look(ctx, true)
	})
	if a.desired.load(a.folder.Path(desiredName), a.log) { // else it is not known what may be stopped
		a.engines.Apply(a.desired.units)
	}
	a.settle(ctx)
	looking.Wait() // a host that has not been seen is not told of
	if err := a.openLinks(); err != nil {
		plane.close()
		a.engines.Stop(context.Background())
		return err
	}

	linked, unlink := context.WithCancel(context.WithoutCancel(ctx)) // the link outlives the drain
	defer unlink()
	a.gateways.ctx, a.gateways.running = linked, map[wire.Gateway]*dialled{}
	var work sync.WaitGroup
	work.Go(func() { a.stayLinked(linked) })
	work.Go(func() { a.stayFresh(linked) })
	work.Go(func() { a.eye.run(linked) })
	work.Go(func() { a.answerProbes(linked) })
	work.Go(func() { a.probe(linked) })
	shipping, stopShipping := context.WithCancel(linked)
	defer stopShipping()
	var shipper sync.WaitGroup
	shipper.Go(func() { a.journal.Ship(shipping, a.sendAttempts) })
	failed := plane.serve(&work)
	select {
	case <-ctx.Done():
	case err = <-failed:
	case <-a.updating.done:
		err = ErrUpdated
	}
	a.drain() // the link is still there, so that gateways learn of it
	stopShipping()
	shipper.Wait()
	a.flush()
	unlink()
	plane.close()
	work.Wait()
	a.gateways.work.Wait()
	return err
}

// settle gives adopted engines a moment to prove themselves before anybody may ask for them.
func (a *agent) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	a.engines.Settle(ctx)
}

// drain lets running work end, and stops the engines unless they are kept.
func (a *agent) drain() {
	a.log.Info("stopping: no new work, running work may end", "attempts", a.journal.Running(), "within", a.cfg.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.Drain+stopMargin)
	defer cancel()
	a.engines.Stop(ctx)
}

// flush ships the rest of the journal. What the hub does not take is shipped after the next start.
func (a *agent) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	if err := a.journal.Flush(ctx, a.sendAttempts); err != nil {
		a.log.Warn("the rest of the journal is kept for the next start", "error", err)
	}
}

var errNoLink = errors.New("no link to the hub")

// client gives the way to the hub.
func (a *agent) client() (*http.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.link == nil {
		return nil, errNoLink
	}
	return a.link, nil
}

func (a *agent) setLink(c *http.Client) {
	a.mu.Lock()
	a.link = c
	a.mu.Unlock()
}
