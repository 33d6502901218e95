package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"millrace/agents/host/relay"
	"millrace/agents/wire"
	"millrace/serving/engine"
)

// Times of watching.
const (
	loadTimeout  = time.Second
	deafIdle     = 3 * time.Second  // without an answer to the load question: not ready
	deafBusy     = 15 * time.Second // the same while attempts run and nothing comes through: some engines answer between batches only
	deafProbe    = time.Minute      // to give one token, or any sign, after all, else it is killed
	stalledAfter = 2 * time.Minute  // attempts run, nothing comes through: ask for a token
	stalledProbe = 2 * time.Minute
)

func (l *life) client() *http.Client { return l.sup.cfg.Client(l.id, l.driver) }

func (l *life) base() string { return relay.Base(l.address) }

// hostPort is where an engine's HTTP listens; "" = loopback.
func hostPort(host string, port int) string {
	if host == "" {
		return loopback(port)
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func listens(ctx context.Context, address string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// poll asks for the load every round and puts it on the board.
func (l *life) poll(ctx context.Context) {
	round := time.NewTicker(wire.LoadInterval)
	defer round.Stop()
	client := l.client()
	for {
		asking, cancel := context.WithTimeout(ctx, loadTimeout)
		load, err := l.driver.Load(asking, client, l.base())
		cancel()
		l.mu.Lock()
		if l.over {
			l.mu.Unlock()
			return
		}
		if err == nil || errors.Is(err, engine.ErrUnsupported) {
			l.last, l.heard = load, l.sup.cfg.Clock.Now()
		}
		l.sup.cfg.Board.Load(l.loadNow())
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-round.C:
		}
	}
}

// watch notices an engine that lives and does not work. An error means that it must be killed.
func (l *life) watch(ctx context.Context) error {
	round := time.NewTicker(wire.LoadInterval)
	defer round.Stop()
	moved, seen := l.sup.cfg.Clock.Now(), l.progress.Load()
	for {
		suspected := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.suspect:
			suspected = true
		case <-round.C:
		}
		now := l.sup.cfg.Clock.Now()
		l.mu.Lock()
		idle, unheard := l.attempts == 0, now.Sub(l.heard)
		l.mu.Unlock()
		if p := l.progress.Load(); p != seen || idle {
			moved, seen = now, p
		}
		var err error
		switch {
		case suspected && listens(ctx, l.address) != nil:
			err = l.doubt(ctx, deafProbe)
		case idle && unheard >= deafIdle, unheard >= deafBusy && now.Sub(moved) >= deafBusy:
			err = l.doubt(ctx, deafProbe)
		case now.Sub(moved) >= stalledAfter:
			err = l.ask(ctx, stalledProbe, func() bool { return l.progress.Load() != seen })
		default:
			continue
		}
		if err != nil {
			return err
		}
		moved = l.sup.cfg.Clock.Now()
	}
}

// doubt takes the unit out of service until the engine has given a token; it fails when it does not, and nothing else
// comes out of it either.
func (l *life) doubt(ctx context.Context, limit time.Duration) error {
	l.setIf(wire.StateStarting, "the engine does not answer", func() bool { l.doubted = true; return !l.over && !l.closing })
	began, chunks := l.sup.cfg.Clock.Now(), l.progress.Load()
	err := l.ask(ctx, limit, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.progress.Load() != chunks || l.heard.After(began)
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.doubted = false
	l.mu.Unlock()
	l.admit()
	return nil
}

// ask wants one token, or any other sign of work, within the limit. A question keeps its place in the engine's queue for
// all that time; only one that fails is put again.
func (l *life) ask(ctx context.Context, limit time.Duration, sign func() bool) error {
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	proved := make(chan error, 1)
	prove := func() { proved <- l.prove(asking, limit) }
	l.helpers.Go(prove)
	round := time.NewTicker(wire.LoadInterval)
	defer round.Stop()
	var err error
	again := time.Time{} // when to put the question again; zero = one is out
	for {
		select {
		case <-asking.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("the engine hangs: %w", errors.Join(asking.Err(), err))
		case err = <-proved:
			if err == nil {
				return nil
			}
			again = l.sup.cfg.Clock.Now().Add(readyMaxPause)
		case <-round.C:
			if sign() {
				return nil
			}
			if now := l.sup.cfg.Clock.Now(); !again.IsZero() && now.After(again) {
				again = time.Time{}
				l.helpers.Go(prove)
			}
		}
	}
}

func (l *life) keepLogSmall(ctx context.Context) {
	round := time.NewTicker(logCheck)
	defer round.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
			if err := rotate(l.dir); err != nil {
				l.sup.cfg.Log.Warn("an engine's log cannot be bounded", "unit", l.id, "error", err)
			}
		}
	}
}
