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

const (
	// maxRaise bounds the budgets of one transaction. A payer has at most thirteen: balance, and four periods of three scopes.
	maxRaise = 64
	// maxRaised bounds the sum of one raise: with the highest cap it stays inside an int64.
	maxRaised money.Nano = 2_000_000_000 * money.NanoPerUSD
	// maxTries is how often one raise is fitted to what is left before the line is looked at again.
	maxTries = 3
	// refusalHolds is how long a budget that was found empty everywhere is not asked about again.
	refusalHolds = 200 * time.Millisecond
)

// kick sees to it that somebody works for those who wait in the wallet. The caller holds its mutex.
func (a *Allotments) kick(w *wallet) {
	if w.raising || !w.stale && !w.spilling && !slices.ContainsFunc(w.waiting, func(x *waiter) bool { return !x.parked }) {
		return
	}
	w.raising = a.spawn(func() {
		for a.step(w) {
		}
	})
	if !w.raising {
		w.fail(errClosing(), func(*waiter) bool { return true })
	}
}

// step makes the one transaction that is wanted most. false: nothing is left to do, or it cannot be done now.
func (a *Allotments) step(w *wallet) bool {
	if !w.takeTurn(a.ctx) {
		a.giveUp(w, errClosing())
		return false
	}
	defer w.endTurn()
	now := a.clock.Now()
	w.mu.Lock()
	w.serve(a, now)
	if w.epoch.over.Load() {
		w.raising = false
		w.mu.Unlock()
		return false
	}
	question, spills := w.question(now), w.spills()
	var line []*want
	if question == nil && !spills {
		line = w.wants(now, a.cfg.Horizon)
	}
	if question == nil && !spills && line == nil {
		w.raising = false
		w.mu.Unlock()
		return false
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.ctx, txTimeout)
	defer cancel()
	var err error
	switch {
	case question != nil:
		err = a.learn(ctx, w, question)
	case spills:
		err = a.giveBack(ctx, w, spilt)
	default:
		err = a.raise(ctx, w, line)
	}
	if err == nil {
		return true
	}
	if errors.Is(err, errEpochOver) {
		a.end(w.epoch)
	}
	slog.Warn("credit: the budgets could not be asked", "org", w.org, "cause", err)
	a.giveUp(w, broken(err))
	return false
}

// giveUp fails those who need the database now. Those who wait for other gateways go on waiting.
func (a *Allotments) giveUp(w *wallet, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raising = false
	w.fail(err, func(x *waiter) bool { return !x.parked })
}

func (w *wallet) takeTurn(ctx context.Context) bool {
	select {
	case w.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *wallet) endTurn() { <-w.turn }

// want is what one pot should be raised by.
type want struct {
	pot    *pot
	exact  money.Nano // without it the first in line goes without
	line   money.Nano // what all in line lack together
	ahead  money.Nano // for what will come
	looked bool       // headroom is of this transaction, not of an earlier one
}

// delta fits the raise to what the budget has left: the line's lack first, and for the time ahead only a part of the rest.
func (k *want) delta() money.Nano {
	left := max(0, k.pot.headroom)
	d := min(k.line, left) + min(k.ahead, max(0, left-k.line)/nearCap)
	if !k.looked {
		d = max(d, k.exact) // an old look decides nothing
	}
	return d
}

// wants lists the pots that those who wait lack money in, sorted by budget; nil when nobody lacks any. The caller holds
// the mutex and has served the line.
func (w *wallet) wants(now time.Time, horizon time.Duration) []*want {
	byPot := make(map[*pot]*want)
	first := true
	for _, extensions := range []bool{true, false} {
		for _, x := range w.waiting {
			if x.parked || (x.hold != nil) != extensions {
				continue
			}
			r, err := w.routeOf(x, now)
			if err != nil || r == nil || !extensions && r.stretching() || len(byPot)+len(r.pots) > maxRaise {
				continue
			}
			for _, p := range r.pots {
				k := byPot[p]
				if k == nil {
					k = &want{pot: p}
					byPot[p] = k
				}
				if k.line += x.needs(p); first {
					k.exact = max(0, x.needs(p)-p.spendable())
				}
			}
			first = false
		}
	}
	var list []*want
	for p, k := range byPot {
		k.ahead = max(p.ahead(now, horizon), k.line/2)
		if k.line = min(max(0, k.line-p.spendable()), maxRaised); k.line > 0 {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b *want) int { return bytes.Compare(a.pot.budget[:], b.pot.budget[:]) })
	return list
}

// raise asks the budgets once, fitting the amounts to what they have left, and serves the line with the outcome. The
// caller has the turn.
func (a *Allotments) raise(ctx context.Context, w *wallet, line []*want) error {
	for range maxTries {
		raises := make([]raise, 0, len(line))
		for _, k := range line {
			if d := k.delta(); d > 0 {
				raises = append(raises, raise{budget: k.pot.budget, delta: d})
			}
		}
		committing, err := a.store.raise(ctx, w.epoch.id, w.org, raises)
		if err != nil && !errors.Is(err, errNoRoom) {
			if committing {
				a.doubt(w, raises)
			}
			return err
		}
		recall, again, err := a.outcome(w, line, raises, err == nil)
		if len(recall) > 0 {
			a.recall(w, recall)
		}
		if err != nil || !again {
			return err
		}
	}
	return nil // others were quicker each time; the line is looked at again
}

// outcome takes over what a raise brought or found. again: a smaller raise can satisfy the first in line.
func (a *Allotments) outcome(w *wallet, line []*want, raises []raise, raised bool) (recall []ids.ID, again bool, err error) {
	now := a.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	looked := make(map[*pot]bool, len(raises))
	for _, r := range raises {
		p := w.pots[r.budget]
		p.headroom, p.others = r.headroom, r.others
		looked[p] = true
		if raised && !p.adopt(r.row.allotted, r.row.returned, r.delta) {
			return nil, false, errEpochOver
		}
		if raised {
			p.raised, p.raise = now, r.delta
		}
	}
	if raised {
		a.stats.raises.Add(1)
	} else {
		again = true
		for _, k := range line {
			k.looked = looked[k.pot]
			again = again && k.pot.headroom >= k.exact
		}
	}
	w.serve(a, now)
	return w.judge(a, looked, now), again, nil
}

// judge refuses or parks those whom the budgets just looked at cannot satisfy, and gives the budgets to be recalled.
func (w *wallet) judge(a *Allotments, looked map[*pot]bool, now time.Time) (recall []ids.ID) {
	for _, x := range w.waiting {
		r, err := w.routeOf(x, now)
		if err != nil || r == nil || x.parked {
			continue
		}
		var lacking []*pot
		hopeless := x.expired
		for _, p := range r.pots {
			if lack := x.needs(p) - p.spendable() - p.headroom; looked[p] && lack > 0 {
				lacking = append(lacking, p)
				hopeless = hopeless || lack > p.others
			}
		}
		switch {
		case len(lacking) == 0:
		case hopeless:
			for _, p := range lacking {
				p.refusedUntil, p.refusedAbove = now.Add(refusalHolds), p.headroom
				if !x.expired { // the others have something, but not enough: less may be had
					p.refusedAbove += p.others
				}
			}
		default:
			x.parked = true
			if !x.asked {
				x.asked = true
				for _, p := range lacking {
					recall = append(recall, p.budget)
				}
				x.signal()
			}
		}
	}
	w.serve(a, now) // refuses the hopeless
	return recall
}

// doubt marks pots whose raise may or may not have been committed: their rows are read under lock before they move again.
func (a *Allotments) doubt(w *wallet, raises []raise) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range raises {
		p := w.pots[r.budget]
		if !p.known {
			p.charged, p.known = r.row.allotted-r.delta-r.row.returned, true
			p.allotted, p.returned = r.row.allotted-r.delta, r.row.returned
		}
		p.unsure = true
	}
}
