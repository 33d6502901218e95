package credit

import (
	"context"
	"slices"
	"time"

	"millrace/internal/money"
)

// waiter is a request, or an extension of one, that waits for money.
type waiter struct {
	payer    Payer
	hold     *Hold // what is extended; nil = a new admission
	amount   money.Nano
	asked    bool // the other gateways were asked for their idle money
	parked   bool // waits for their answers
	expired  bool // they have had their time
	wake     chan struct{}
	finished bool
	err      error // set when finished
}

// grant gives a waiter its money. The caller takes it from the list.
func (w *wallet) grant(x *waiter, r *route, now time.Time) {
	for _, p := range r.pots {
		p.take(x.needs(p), now)
	}
	if x.hold == nil {
		x.hold = &Hold{wallet: w, began: now}
		w.open++
	}
	x.hold.route, x.hold.learned = r, w.learned
	x.hold.amount += x.amount
	x.finish(nil)
}

// needs is what the waiter takes of a pot: one that its hold has not joined yet pays for all of it.
func (x *waiter) needs(p *pot) money.Nano {
	if x.hold == nil || slices.Contains(x.hold.route.pots, p) {
		return x.amount
	}
	return x.hold.amount + x.amount
}

// fits reports whether every pot has that.
func (x *waiter) fits(r *route) bool {
	return !slices.ContainsFunc(r.pots, func(p *pot) bool { return p.spendable() < x.needs(p) })
}

func (x *waiter) finish(err error) {
	x.finished, x.err = true, err
	x.signal()
}

func (x *waiter) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// enqueue puts a waiter in line, unless it can be finished at once. The caller holds the wallet's mutex.
func (a *Allotments) enqueue(w *wallet, x *waiter, now time.Time) error {
	if len(w.waiting) >= maxWaiting {
		return unavailable("Too many requests of this organization are waiting for its budgets.")
	}
	if w.try(a, x, now); !x.finished {
		w.waiting = append(w.waiting, x)
		a.kick(w)
	}
	return nil
}

// wait returns when the waiter is finished or ctx has ended.
func (a *Allotments) wait(ctx context.Context, w *wallet, x *waiter) error {
	var answers *time.Timer
	var over <-chan time.Time
	for {
		select {
		case <-x.wake:
		case <-over:
			over = nil
			w.mu.Lock()
			x.expired, x.parked = true, false
			a.kick(w)
			w.mu.Unlock()
		case <-ctx.Done():
		}
		w.mu.Lock()
		if !x.finished && ctx.Err() != nil {
			w.fail(ctx.Err(), func(o *waiter) bool { return o == x })
			w.serve(a, a.clock.Now()) // whoever stood back for it need not any more
			a.kick(w)
		}
		finished, err := x.finished, x.err
		if !finished && x.asked && answers == nil {
			answers = time.NewTimer(a.cfg.RecallWait)
			defer answers.Stop()
			over = answers.C
		}
		w.mu.Unlock()
		if finished {
			return err
		}
	}
}
