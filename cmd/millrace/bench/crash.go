package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millrace/internal/ids"
)

// CrashConfig says how often to kill what.
type CrashConfig struct {
	Binary       string // of millrace
	Dir          string // "" = a temporary folder, removed when nothing was found
	UpKills      int    // of the whole `up`
	GatewayKills int    // of a gateway process alone
	Seed         uint64 // of the load and of the moments; 0 = by chance
	Out          io.Writer
}

// ErrCrash means that the books did not agree with what clients were told.
var ErrCrash = errors.New("the books do not agree with what the clients were told")

const maxWrongShown = 20

// Crash kills `up`, and gateways alone, at random moments under load. After each kill the books must agree with what every
// client was told. The data of a part that found something is kept.
func Crash(ctx context.Context, c CrashConfig) error {
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	fmt.Fprintf(c.Out, "crash run, seed %d\n", c.Seed)
	dir := c.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "millrace-crash-"); err != nil {
			return err
		}
		// As root the database runs as another user, who must be able to cross the folder.
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	for i, part := range c.parts() {
		r := &crashRun{cfg: c, name: part.name, dir: filepath.Join(dir, part.name), kills: part.kills, began: time.Now(),
			random: rand.New(rand.NewPCG(c.Seed, uint64(i))), book: newBook()}
		if err := r.whole(ctx, part.run); err != nil {
			return fmt.Errorf("%s: %w (everything is kept in %s)", part.name, err, r.dir)
		}
		if c.Dir == "" {
			if err := os.RemoveAll(r.dir); err != nil {
				return err
			}
		}
	}
	if c.Dir == "" {
		return os.RemoveAll(dir)
	}
	return nil
}

// crashPart is one installation and how often something of it is killed.
type crashPart struct {
	name  string
	kills int
	run   func(context.Context, *crashRun) error
}

// killsAPart bounds the books that are compared as a whole again and again.
const killsAPart = 1000

func (c *CrashConfig) parts() (parts []crashPart) {
	if c.UpKills > 0 {
		parts = append(parts, crashPart{"up", c.UpKills, crashUp})
	}
	for done := 0; done < c.GatewayKills; done += killsAPart {
		parts = append(parts, crashPart{fmt.Sprintf("gateway-%d", done/killsAPart+1), min(killsAPart, c.GatewayKills-done), crashGateways})
	}
	return parts
}

// crashRun is one part of a run.
type crashRun struct {
	cfg    CrashConfig
	name   string
	dir    string
	kills  int // wanted
	killed int // and their clients' stories compared
	began  time.Time
	random *rand.Rand
	log    io.Writer // of the processes

	book  *book
	load  *crashLoad
	since ids.ID // events up to here were compared
	sum   tally
	wrong []string
}

func (r *crashRun) whole(ctx context.Context, run func(context.Context, *crashRun) error) error {
	if err := os.MkdirAll(r.dir, 0o711); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.dir, "processes.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	r.log = log
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	err = run(ctx, r)
	fmt.Fprintf(r.cfg.Out, "%s: %d kills in %.0f s: %s\n", r.name, r.killed, time.Since(r.began).Seconds(), r.sum)
	for said, n := range r.book.refused {
		fmt.Fprintf(r.cfg.Out, "  refused %d times: %s\n", n, strings.TrimSpace(said))
	}
	for i, w := range r.wrong {
		if i == maxWrongShown {
			fmt.Fprintf(r.cfg.Out, "  … and %d more\n", len(r.wrong)-i)
			break
		}
		fmt.Fprintf(r.cfg.Out, "  WRONG: %s\n", w)
	}
	if len(r.wrong) > 0 {
		err = errors.Join(err, ErrCrash)
	}
	return err
}

// moment is a random time up to longest.
func (r *crashRun) moment(longest time.Duration) time.Duration {
	return time.Duration(r.random.Int64N(int64(longest)))
}

// wait sleeps, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
