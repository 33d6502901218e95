package credit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// maxAmount bounds one hold: a million USD. It keeps every sum here far from overflow.
const maxAmount money.Nano = 1_000_000 * money.NanoPerUSD

// Hold is money set aside for one running request. It is safe for concurrent use.
type Hold struct {
	wallet *wallet
	began  time.Time
	// The wallet's mutex guards what follows.
	route   *route
	learned int // as the wallet's, when the route was made or looked at
	amount  money.Nano
	settled bool
}

// Hold takes amount from every budget of the payer at once, or nothing. It is answered from memory while the allotments
// suffice, also when the database is away. Errors are faults: OutOfCredit when a budget has no room, wherever its money
// lies; Unavailable when this process may not admit now or the database is needed and away; or the context's own.
func (a *Allotments) Hold(ctx context.Context, p Payer, amount money.Nano) (*Hold, error) {
	if amount < 0 || amount > maxAmount {
		return nil, fault.New(fault.Invalid, "The request is too large to be paid for.").WithCause(fmt.Errorf("credit: a hold of %s USD", amount))
	}
	now := a.clock.Now()
	e := a.epoch.Load()
	if err := a.admits(e, now, false); err != nil {
		return nil, err
	}
	s := e.shard(p.Org)
	s.mu.Lock()
	w := s.wallet(p.Org, e, now)
	if r := w.routes[p.Key]; r != nil && r.serves(&p, now) && r.fits(amount) && !r.stretching() {
		for _, pot := range r.pots {
			pot.take(amount, now)
		}
		w.open++
		s.mu.Unlock()
		return &Hold{wallet: w, began: now, route: r, learned: w.learned, amount: amount}, nil
	}
	x := &waiter{payer: p, amount: amount, wake: make(chan struct{}, 1)}
	err := a.enqueue(w, x, now)
	s.mu.Unlock()
	if err == nil {
		err = a.wait(ctx, w, x)
	}
	if err != nil {
		return nil, err
	}
	return x.hold, nil
}

// Extend raises the hold by more, or fails as Allotments.Hold does and leaves it as it was. An extension goes before new
// admissions, and goes on past the epoch's validity: a running stream is covered until its epoch is over. A cap
// that was set since the hold was taken takes part from here on, with all that is held.
func (h *Hold) Extend(ctx context.Context, more money.Nano) error {
	w := h.wallet
	a := w.epoch.owner
	if more < 0 || more > maxAmount {
		return fault.New(fault.Internal, "The hold cannot be extended.").WithCause(fmt.Errorf("credit: an extension by %s USD", more))
	}
	now := a.clock.Now()
	if err := a.admits(w.epoch, now, true); err != nil {
		return err
	}
	w.mu.Lock()
	if h.settled {
		w.mu.Unlock()
		return errEnded()
	}
	if h.learned == w.learned && h.route.fits(more) && !h.route.stretching() {
		for _, p := range h.route.pots {
			p.take(more, now)
		}
		h.amount += more
		w.mu.Unlock()
		return nil
	}
	x := &waiter{hold: h, amount: more, wake: make(chan struct{}, 1)}
	err := a.enqueue(w, x, now)
	w.mu.Unlock()
	if err == nil {
		err = a.wait(ctx, w, x)
	}
	return err
}

// Settle charges an amount and frees the rest. The first call counts; others do nothing and are reported, as is a charge
// above what is held, which is cut to it.
func (h *Hold) Settle(charge money.Nano) {
	w := h.wallet
	a := w.epoch.owner
	now := a.clock.Now()
	w.mu.Lock()
	held := h.amount
	if h.settled || charge < 0 || charge > held {
		a.stats.misuses.Add(1)
		slog.Error("credit: a hold was settled wrongly", "org", w.org, "held", held, "charge", charge, "again", h.settled)
	}
	if !h.settled {
		h.settled = true
		charge = min(max(charge, 0), held)
		for _, p := range h.route.pots {
			p.settle(held, charge, now)
			if spilt(p) > 0 {
				w.spilling, p.refusedUntil = true, time.Time{}
			}
		}
		w.open--
		if len(w.waiting) > 0 {
			w.serve(a, now)
		}
		a.kick(w)
	}
	w.mu.Unlock()
}

// Release frees the hold without a charge.
func (h *Hold) Release() { h.Settle(0) }

// Amount is what is held.
func (h *Hold) Amount() money.Nano {
	h.wallet.mu.Lock()
	defer h.wallet.mu.Unlock()
	return h.amount
}

// Epoch is the epoch that the money is of; events carry it.
func (h *Hold) Epoch() ids.ID { return h.wallet.epoch.id }

// Budgets are the budgets that the hold was taken from, sorted. An extension may add some. The slice is shared: do not change it.
func (h *Hold) Budgets() []ids.ID { return h.paidBy().budgets }

// OrgBudget is the budget of the organization's balance.
func (h *Hold) OrgBudget() ids.ID { return h.paidBy().balance }

func (h *Hold) paidBy() *route {
	h.wallet.mu.Lock()
	defer h.wallet.mu.Unlock()
	return h.route
}

func errEnded() error {
	return fault.New(fault.Internal, "The request has ended.").WithCause(errors.New("credit: an extension of a settled hold"))
}
