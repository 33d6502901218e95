package credit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"millrace/internal/ids"
)

// troubled is how soon a heartbeat that failed is tried again.
const troubled = time.Second

// begin makes an epoch: first the lock, then the row that names it.
func (a *Allotments) begin(ctx context.Context) (*epoch, error) {
	id := ids.New()
	lock, dataLock, err := lockEpoch(a.cfg.LockDir, id)
	if err != nil {
		return nil, err
	}
	e := newEpoch(a, id, lock)
	start := a.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	if e.lastSeen, err = a.store.openEpoch(ctx, id, dataLock, &a.cfg); err != nil {
		lock.Close()
		_ = RemoveLock(dataLock)
		return nil, err
	}
	a.extend(e, start)
	a.stats.epochs.Add(1)
	return e, nil
}

// extend makes the epoch valid for Validity from start, which lies before its heartbeat was sent.
func (a *Allotments) extend(e *epoch, start time.Time) {
	e.valid.Store(int64(start.Sub(a.base) + a.cfg.Validity))
}

// beat keeps the epoch alive until the process closes.
func (a *Allotments) beat() {
	next := time.NewTimer(a.cfg.Heartbeat)
	defer next.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-next.C:
		case <-a.beatNow:
		}
		pause := a.cfg.Heartbeat
		if err := a.beatOnce(a.ctx); err != nil {
			if a.ctx.Err() != nil {
				return
			}
			pause = min(pause, troubled)
			slog.Warn("credit: no heartbeat", "epoch", a.Epoch(), "cause", err)
		}
		next.Reset(pause)
	}
}

// beatOnce renews the epoch's validity. An epoch that is over is replaced by a new one.
func (a *Allotments) beatOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	e := a.epoch.Load()
	if !e.over.Load() {
		start := a.clock.Now()
		seen, err := a.store.beat(ctx, e.id, e.lastSeen, &a.cfg)
		switch {
		case err == nil:
			e.lastSeen = seen
			a.extend(e, start)
			return nil
		case !errors.Is(err, errEpochOver):
			return err
		}
		a.end(e)
	}
	if a.closing.Load() {
		return nil
	}
	fresh, err := a.begin(ctx)
	if err != nil {
		return err
	}
	a.past = append(a.past, e.lock)
	a.epoch.Store(fresh)
	slog.Warn("credit: a new epoch replaces one that the database had closed or did not know", "old", e.id, "new", fresh.id)
	return nil
}

// end stops an epoch at once: nothing more is taken from it. Its running requests settle as they end.
func (a *Allotments) end(e *epoch) {
	if e.over.Swap(true) {
		return
	}
	e.each(func(w *wallet) {
		w.fail(unavailable("The gateway is renewing its budgets. Please retry shortly."), func(*waiter) bool { return true })
	})
	select {
	case a.beatNow <- struct{}{}:
	default:
	}
}
