// Package up is `millrace up`: everything on one machine, for trial and development. It owns the data folder, the private
// PostgreSQL and NATS, the server with every role, the agents as child processes, and the order in which they start and
// end. It owns no business rule.
package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/cmd/millrace/assembly"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/pg"
	"millrace/internal/clock"
	"millrace/internal/datafolder"
)

// Config is what `millrace up` was told.
type Config struct {
	Data          string
	Listen        string
	AgentListen   string
	MetricsListen string
	ReadyFile     string
	Fresh         bool
	Attach        []string
	Engine        string   // sim or llamacpp
	EngineFlags   []string // further arguments of its engines
	Replicas      int
	Validity      time.Duration
	Drain         time.Duration
	Seller        invoice.Seller // who sends invoices
	InvoiceDue    time.Duration
	Version       string
	Out           *os.File // where progress and the welcome go
}

// Limits and times.
const (
	MaxReplicas = 8
	startLimit  = 10 * time.Minute // downloads included
	readyLimit  = 10 * time.Minute // for the engines to be ready, a first download of a model included
	dbStop      = 30 * time.Second
)

// Run starts everything, says where it is, and ends it in order when ctx ends.
func Run(ctx context.Context, c Config) error {
	u := &instance{cfg: c, say: newProgress(c.Out, clock.System)}
	if err := u.start(ctx); err != nil {
		return errors.Join(err, u.stop())
	}
	var failure error
	select {
	case <-ctx.Done():
		u.say.step("stopping: requests finish, then agents and engines, then the bus and the database")
	case failure = <-u.server.Failed():
	case <-u.postgres.Done():
		failure = errors.New("PostgreSQL ended")
	}
	return errors.Join(failure, u.stop())
}

// instance is one running `up`.
type instance struct {
	cfg Config
	say *progress

	folder   *datafolder.Folder
	postgres *pg.Server
	nats     *bus.Server
	server   *assembly.Server
	payments *stripefake.Server // not real
	ends     []func() error     // newest last
}

func (u *instance) onEnd(fn func() error) { u.ends = append(u.ends, fn) }

// stop ends what was started, newest first: gateway, agents with their engines, NATS, PostgreSQL, the folder's lock.
func (u *instance) stop() error {
	var errs []error
	for i := len(u.ends) - 1; i >= 0; i-- {
		errs = append(errs, u.ends[i]())
	}
	return errors.Join(errs...)
}

func (u *instance) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	attach := make([]attachment, len(u.cfg.Attach))
	for i, s := range u.cfg.Attach {
		var err error
		if attach[i], err = parseAttachment(s); err != nil {
			return err
		}
	}
	if err := u.openFolder(ctx); err != nil {
		return err
	}
	public, agents, metrics, err := u.listen()
	if err != nil {
		return err
	}
	if err := u.startStores(ctx); err != nil {
		return err
	}
	if err := u.startServer(ctx, public, agents, metrics); err != nil {
		return err
	}
	d, err := ensureDemo(ctx, u.folder, u.server)
	if err != nil {
		return fmt.Errorf("demo customer: %w", err)
	}
	models, err := u.startEngines(ctx)
	if err != nil {
		return err
	}
	u.onEnd(u.drain) // before the agents end
	attached, err := u.attach(ctx, attach)
	if err != nil {
		return err
	}
	if err := u.waitReady(ctx, models); err != nil {
		return err
	}
	return u.welcome(ctx, d, append(models, attached...))
}

func (u *instance) openFolder(ctx context.Context) error {
	path := u.cfg.Data
	if path == "" {
		var err error
		if path, err = datafolder.Default(); err != nil {
			return err
		}
	}
	folder, err := datafolder.Open(path)
	if err != nil {
		return err
	}
	u.folder = folder
	u.onEnd(folder.Close)
	if !u.cfg.Fresh {
		return nil
	}
	u.say.step("starting fresh: everything in %s is removed", path)
	return u.clear(ctx)
}

// clear removes an earlier life's data. What it left running is ended first, or it would write into the new folder.
func (u *instance) clear(ctx context.Context) error {
	if err := pg.Clear(ctx, u.folder.Path("postgres")); err != nil {
		return err
	}
	return u.folder.Clear()
}

// listen takes the addresses before anything slow happens: a busy port is said at once.
func (u *instance) listen() (public, agents, metrics net.Listener, err error) {
	take := func(flag, address string) net.Listener {
		if err != nil {
			return nil
		}
		var l net.Listener
		if l, err = net.Listen("tcp", address); err != nil {
			if errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("%s is in use by another program: stop it or choose another address with %s", address, flag)
			} else {
				err = fmt.Errorf("%s %s: %w", flag, address, err)
			}
			return nil
		}
		u.onEnd(func() error { _ = l.Close(); return nil }) // its server closes it too
		return l
	}
	public = take("--listen", u.cfg.Listen)
	agents = take("--agent-listen", u.cfg.AgentListen)
	metrics = take("--metrics-listen", u.cfg.MetricsListen)
	return public, agents, metrics, err
}

// startStores starts PostgreSQL and NATS. The folder's lock proves that nobody else runs them here.
func (u *instance) startStores(ctx context.Context) error {
	if err := u.wholeFolder(); err != nil {
		return err
	}
	logs, err := u.folder.Dir("logs")
	if err != nil {
		return err
	}
	pgLog, err := openLog(filepath.Join(logs, "postgres.log"))
	if err != nil {
		return err
	}
	u.onEnd(pgLog.Close)
	if u.postgres, err = pg.Start(ctx, pg.Config{Dir: u.folder.Path("postgres"), Log: pgLog, Progress: u.say.report}); err != nil {
		return err
	}
	u.onEnd(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), dbStop)
		defer cancel()
		return u.postgres.Stop(ctx)
	})
	return u.startLog(ctx)
}

// wholeFolder refuses a folder that lost its database: a new one would know nothing of the keys and customers that the rest
// of the folder remembers.
func (u *instance) wholeFolder() error {
	_, remembers := os.Stat(u.folder.Path(demoFile))
	_, database := os.Stat(u.folder.Path("postgres", "data", "PG_VERSION"))
	if remembers == nil && errors.Is(database, os.ErrNotExist) {
		return fmt.Errorf("%s has no database any more (postgres/ is missing or empty): restore the whole folder from a backup, or start anew with --fresh", u.folder.Path())
	}
	return nil
}

const maxLogBytes = 32 << 20

// openLog appends to a log file; one that has grown large is kept as .old, once.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (u *instance) connect(ctx context.Context, name string) (*bus.Bus, error) {
	b, err := bus.Connect(ctx, bus.Config{Server: u.nats, Name: name})
	if err != nil {
		return nil, err
	}
	u.onEnd(func() error { b.Close(); return nil })
	return b, nil
}

func (u *instance) openDB(ctx context.Context) (*db.DB, error) {
	d, err := db.Open(ctx, u.postgres.URL(), db.Options{})
	if err != nil {
		return nil, err
	}
	u.onEnd(func() error { d.Close(); return nil })
	return d, nil
}
