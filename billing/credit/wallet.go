package credit

import (
	"slices"
	"sync"
	"time"

	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// wallet is an organization's pots at this process, and the requests that wait for one of them to fill.
type wallet struct {
	org   ids.ID
	epoch *epoch
	mu    *sync.Mutex // its shard's; it guards everything below but turn

	caps     map[scopeKey][]period.Kind // which scopes are capped, and by what; nil until read
	stale    bool                       // caps must be read (again)
	learned  int                        // how often they were read: running holds look for new ones
	pots     map[ids.ID]*pot
	byKey    map[budgetKey]*pot
	routes   map[ids.ID]*route // by key
	waiting  []*waiter         // oldest first
	raising  bool              // a goroutine runs for the waiting
	short    []*pot            // that extensions wait for: pot.stretching
	spilling bool              // money became free where a cap fell: it goes back
	recalls  map[ids.ID]bool   // budgets that other gateways ask back; not nil while a goroutine sees to it
	lastUse  time.Time
	open     int // holds

	turn chan struct{} // one database transaction at a time: whoever is in the channel has it
}

// Limits of waiting.
const (
	maxWaiting = 2_000 // requests of one organization
	retryAfter = time.Second
)

func errClosing() error { return unavailable("The gateway is shutting down. Please retry.") }

func unavailable(message string) *fault.Fault {
	return fault.New(fault.Unavailable, "%s", message).WithCode("budgets_unavailable").WithRetryAfter(retryAfter)
}

// serve finishes every waiter that can be finished from memory: extensions first, then admissions in their order.
func (w *wallet) serve(a *Allotments, now time.Time) {
	for _, p := range w.short {
		p.stretching = false
	}
	w.short = w.short[:0]
	for _, extensions := range []bool{true, false} {
		for _, x := range w.waiting {
			if (x.hold != nil) == extensions {
				w.try(a, x, now)
			}
		}
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(x *waiter) bool { return x.finished })
}

// try finishes one waiter if memory allows it.
func (w *wallet) try(a *Allotments, x *waiter, now time.Time) {
	extends := x.hold != nil
	if err := a.admits(w.epoch, now, extends); err != nil {
		x.finish(err)
		return
	}
	if extends && x.hold.settled {
		x.finish(errEnded())
		return
	}
	r, err := w.routeOf(x, now)
	switch {
	case err != nil:
		x.finish(err)
	case r == nil: // the database must be asked first
	case x.fits(r) && (extends || !r.stretching()):
		w.grant(x, r, now)
	default:
		if p := x.refused(r, now); p != nil {
			a.stats.refusals.Add(1)
			x.finish(refusal(p, r.zone))
			return
		}
		for _, p := range r.pots {
			if extends && !p.stretching && p.spendable() < x.needs(p) {
				p.stretching = true
				w.short = append(w.short, p)
			}
		}
	}
}

// routeOf is the route that a waiter is paid by: an extension stays with its hold's, and joins what is capped since.
func (w *wallet) routeOf(x *waiter, now time.Time) (*route, error) {
	if x.hold != nil {
		return x.hold.join(now)
	}
	return w.route(&x.payer, now)
}

// refused gives the pot, the narrowest scope first, for which it was just proven that the amount cannot be had anywhere.
func (x *waiter) refused(r *route, now time.Time) *pot {
	var worst *pot
	for _, p := range r.pots {
		if now.Before(p.refusedUntil) && x.needs(p)-p.spendable() > p.refusedAbove && (worst == nil || narrower(p, worst)) {
			worst = p
		}
	}
	return worst
}

// narrower orders refusals: a key's own cap says more than the balance behind it.
func narrower(a, b *pot) bool {
	rank := func(p *pot) int {
		switch {
		case p.key.kind == kindBalance:
			return 0
		case p.key.scope == OrgScope:
			return 1
		case p.key.scope == ProjectScope:
			return 2
		}
		return 3
	}
	return rank(a) > rank(b)
}

// spills reports whether something lies free where a cap fell.
func (w *wallet) spills() bool {
	w.spilling = false
	for _, p := range w.pots {
		if spilt(p) > 0 {
			return true
		}
	}
	return false
}

// fail finishes every waiter that matches.
func (w *wallet) fail(err error, match func(x *waiter) bool) {
	w.waiting = slices.DeleteFunc(w.waiting, func(x *waiter) bool {
		if !match(x) {
			return false
		}
		x.finish(err)
		return true
	})
}
