package credit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
)

// giveBack returns what pick says of each pot (at most what is free), and reads rows again whose state is unsure. The
// caller has the wallet's turn. While the transaction runs, the money cannot be held.
func (a *Allotments) giveBack(ctx context.Context, w *wallet, pick func(p *pot) money.Nano) error {
	w.mu.Lock()
	var list []giving
	for id, p := range w.pots {
		n := min(pick(p), p.free())
		if n > 0 || p.unsure {
			n = max(0, n)
			p.returning += n
			list = append(list, giving{budget: id, amount: n})
		}
	}
	w.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(x, y giving) int { return bytes.Compare(x.budget[:], y.budget[:]) })
	given, committing, err := a.store.giveBack(ctx, w.epoch.id, w.org, list)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		for _, g := range list {
			if p := w.pots[g.budget]; committing {
				p.unsure = true // it may have been returned: it stays set aside
			} else {
				p.returning -= g.amount
			}
		}
		return err
	}
	a.stats.returns.Add(1)
	for i, g := range given {
		p := w.pots[g.budget]
		if g.amount < list[i].amount || !p.adopt(g.row.allotted, g.row.returned, 0) {
			return errEpochOver // a fence, or an older copy of the database, was here
		}
		p.headroom = g.headroom
	}
	return nil
}

// returnNow takes a turn for giveBack. patient=false: if the wallet is busy, another time will do.
func (a *Allotments) returnNow(ctx context.Context, w *wallet, patient bool, pick func(p *pot) money.Nano) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	if patient {
		if !w.takeTurn(ctx) {
			return ctx.Err()
		}
	} else {
		select {
		case w.turn <- struct{}{}:
		default:
			return nil
		}
	}
	err := a.giveBack(ctx, w, pick)
	w.endTurn()
	if errors.Is(err, errEpochOver) {
		a.end(w.epoch)
	}
	return err
}

func everything(p *pot) money.Nano { return p.free() }

// returnAll returns all that is free in the epoch.
func (a *Allotments) returnAll(ctx context.Context, e *epoch) error {
	var wallets []*wallet
	e.each(func(w *wallet) { wallets = append(wallets, w) })
	for _, w := range wallets {
		if err := a.returnNow(ctx, w, true, everything); err != nil {
			return err
		}
	}
	return nil
}

const (
	sweepEvery = time.Second
	// forgetAfter is when a pot or wallet that holds nothing is dropped from memory.
	forgetAfter = 10 * time.Minute
)

// sweep returns idle money, reads what is unsure or stale, polls for caps that no notice told of, and forgets.
func (a *Allotments) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-a.ctx.Done():
			return
		case <-tick.C:
		}
		e := a.epoch.Load()
		if e.over.Load() {
			continue
		}
		if n%pollSweeps == 0 {
			a.poll(e)
		}
		for _, w := range a.idle(e) {
			if err := a.returnNow(a.ctx, w, false, func(p *pot) money.Nano { return p.idle(a.clock.Now(), &a.cfg) }); err != nil {
				if a.ctx.Err() == nil {
					slog.Warn("credit: idle money could not be returned", "org", w.org, "cause", err)
				}
				break // the database is away, or the epoch is over: the others would fail as well
			}
		}
	}
}

// idle lists the wallets with something to return or to read, and forgets those that nobody uses.
func (a *Allotments) idle(e *epoch) (list []*wallet) {
	now := a.clock.Now()
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		for org, w := range s.wallets {
			if len(w.waiting) > 0 || w.raising {
				continue
			}
			busy := w.tidy(now, &a.cfg)
			if w.stale {
				a.kick(w)
			}
			if busy {
				list = append(list, w)
			} else if len(w.pots) == 0 && w.open == 0 && !w.raising && now.Sub(w.lastUse) > forgetAfter {
				delete(s.wallets, org)
			}
		}
		s.mu.Unlock()
	}
	return list
}

// tidy closes windows of demand, forgets pots, and reports whether one has something to return or is unsure.
func (w *wallet) tidy(now time.Time, c *Config) (busy bool) {
	for id, p := range w.pots {
		p.roll(now)
		if p.unsure || p.idle(now, c) > 0 {
			busy = true
		}
		if p.held == 0 && p.free() == 0 && p.returning == 0 && !p.unsure && now.Sub(p.lastUse) > forgetAfter {
			delete(w.pots, id)
			delete(w.byKey, p.key)
			clear(w.routes)
		}
	}
	return busy
}

// idle is how much of a pot should go back: all of it when it was not used for a while or its period is over, else what
// is far above the spare.
func (p *pot) idle(now time.Time, c *Config) money.Nano {
	free := p.free()
	switch spare := p.spare(c.Horizon); {
	case p.over():
		return free
	case now.Sub(p.lastUse) >= c.IdleAfter, !p.span.End.IsZero() && !now.Before(p.span.End):
		return free
	case free > tooMuch*(spare+p.held) && now.Sub(p.raised) >= c.IdleAfter:
		return free - spare
	}
	return 0
}

// spilt picks what must not stay where the cap fell.
func spilt(p *pot) money.Nano {
	if p.over() {
		return p.free()
	}
	return 0
}

// recalled picks what is free of these budgets.
func recalled(budgets map[ids.ID]bool) func(p *pot) money.Nano {
	return func(p *pot) money.Nano {
		if budgets[p.budget] {
			return p.free()
		}
		return 0
	}
}
