package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/pg"
	"millrace/internal/datafolder"
)

// Stores are a data folder's database and usage log, for a command that looks at them.
type Stores struct {
	DB      *db.DB
	Bus     *bus.Bus // nil: there is no log
	Running bool     // an `up` runs

	ends []func() error // newest last
}

// OpenStores opens what is in a data folder ("" = the default one): beside a running `up`, or, when none runs, by starting
// what it needs under the folder's lock.
func OpenStores(ctx context.Context, data string) (*Stores, error) {
	var err error
	if data == "" {
		data, err = datafolder.Default()
	} else {
		data, err = filepath.Abs(data) // the database's socket is found by it
	}
	if err != nil {
		return nil, err
	}
	// Opening a folder would make one.
	if _, err := os.Stat(filepath.Join(data, "postgres")); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is no data folder of `millrace up`: name one with --data", data)
	}
	s := &Stores{}
	folder, err := datafolder.Open(data)
	switch {
	case errors.Is(err, datafolder.ErrBusy):
		err = s.beside(ctx, data)
	case err == nil:
		s.onEnd(folder.Close)
		err = s.instead(ctx, folder)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stores) onEnd(fn func() error) { s.ends = append(s.ends, fn) }

// Close ends what was started, newest first.
func (s *Stores) Close() error {
	var errs []error
	for i := len(s.ends) - 1; i >= 0; i-- {
		errs = append(errs, s.ends[i]())
	}
	s.ends = nil
	return errors.Join(errs...)
}

// beside joins the database of the process that has the folder.
func (s *Stores) beside(ctx context.Context, data string) error {
	url, err := pg.Connect(filepath.Join(data, "postgres"))
	if errors.Is(err, pg.ErrNotRunning) {
		return fmt.Errorf("%s is used by a `millrace up` that is starting or stopping: try again", data)
	}
	if err != nil {
		return err
	}
	s.Running = true
	if err := s.openDB(ctx, url); err != nil {
		return err
	}
	if s.Bus, err = besideLog(ctx, data); err != nil {
		return fmt.Errorf("the usage log of the running `millrace up`: %w", err)
	}
	s.onEnd(func() error { s.Bus.Close(); return nil })
	return nil
}

// instead runs the stores itself.
func (s *Stores) instead(ctx context.Context, folder *datafolder.Folder) error {
	server, err := pg.Start(ctx, pg.Config{Dir: folder.Path("postgres")})
	if err != nil {
		return err
	}
	s.onEnd(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbStop)
		defer cancel()
		return server.Stop(ctx)
	})
	if err := s.openDB(ctx, server.URL()); err != nil {
		return err
	}
	dir := folder.Path("nats")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil // no log: nothing can wait in it
	}
	nats, err := bus.StartEmbedded(ctx, bus.EmbeddedConfig{Dir: dir, SyncAlways: true})
	if err != nil {
		return err
	}
	s.onEnd(func() error { nats.Stop(); return nil })
	if s.Bus, err = bus.Connect(ctx, bus.Config{Server: nats, Name: "look"}); err != nil {
		return err
	}
	s.onEnd(func() error { s.Bus.Close(); return nil })
	return nil
}

const storesConns = 4

func (s *Stores) openDB(ctx context.Context, url string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storesOpen)
	defer cancel()
	if s.DB, err = db.Open(ctx, url, db.Options{MaxConns: storesConns, Name: "millrace command"}); err != nil {
		return err
	}
	s.onEnd(func() error { s.DB.Close(); return nil })
	return nil
}

const storesOpen = 10 * time.Second
