package topup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// A charge whose outcome is unknown. Both times count from the moment in which its attempt was begun (topups.updated_at
// while it is processing and the payment provider knows no payment): a request that hangs may charge long after we gave up.
const (
	askFor     = 5 * time.Minute  // so long it is asked for again under the same key
	unknownFor = 20 * time.Minute // so long no other attempt is made; the payment provider is through with this one by then
)

// charge charges the kept card for an automatic top-up that is due, once what happened so far is known.
func (s *Service) charge(ctx context.Context, t q.Topup) error {
	seen, err := s.look(ctx, t, "")
	if err != nil {
		return err
	}
	if seen.known {
		return s.finish(ctx, t, seen)
	}
	began, customer, wanted, err := s.beginAttempt(ctx, t)
	if errors.Is(err, errMoved) {
		return nil // whoever was faster does the rest
	}
	if err != nil {
		return err
	}
	waited := s.now().Sub(began.UpdatedAt)
	switch {
	case State(began.State) != Processing: // not wanted any more, and not asked for
		left := began
		left.State, left.NextAt = string(Expired), nil
		return s.finish(ctx, began, outlook{row: left})
	case waited >= unknownFor: // nothing was found under this attempt, and nothing can come of it any more
		again, at := began, s.now().Add(claimFor)
		again.State, again.Attempt, again.NextAt = string(Retrying), again.Attempt+1, &at
		return s.finish(ctx, began, outlook{row: again})
	case waited >= askFor, !wanted:
		return nil // another look in a minute
	case len(began.CustomerIds) > 0 && began.CustomerIds[len(began.CustomerIds)-1] != customer.CustomerID:
		return nil // it was asked for under another customer; only another attempt is under this one
	}
	return s.ask(ctx, began, customer)
}

// beginAttempt writes that the card is being charged now, before it is: what becomes of it may never be told. wanted says
// that the customer allows the charge, in this moment and under the locks of what that depends on. An attempt that is begun
// stays begun.
func (s *Service) beginAttempt(ctx context.Context, t q.Topup) (began q.Topup, c q.PaymentCustomer, wanted bool, err error) {
	began = t
	err = s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		n, err := s.need(ctx, r, t.OrgID)
		if err != nil {
			return err
		}
		row, err := r.LockTopup(ctx, q.LockTopupParams{OrgID: t.OrgID, ID: t.ID})
		if err != nil {
			return found(err, "top-up")
		}
		if row.Version != t.Version {
			return errMoved
		}
		if c, err = r.PaymentCustomer(ctx, t.OrgID); err != nil {
			return found(err, "customer at the payment provider")
		}
		n = n.without(t.Cents)
		wanted = n.on() && n.low() && t.Cents <= n.left() && t.Cents <= n.gap() && c.MethodID != nil
		if !wanted || State(t.State) == Processing {
			return nil
		}
		began.State, began.UpdatedAt, began.Version = string(Processing), s.now(), t.Version+1
		began.CustomerIds = withCustomer(t.CustomerIds, c.CustomerID)
		return change(ctx, r, began, began.UpdatedAt)
	})
	return began, c, wanted, err
}

// ask makes the charge. Asking again for the same attempt charges nothing more.
func (s *Service) ask(ctx context.Context, t q.Topup, customer q.PaymentCustomer) error {
	p, err := s.c.Gateway.Charge(ctx, Charge{Key: fmt.Sprintf("%s:%d", ledgerKey(t, "charge"), t.Attempt), Customer: customer.CustomerID, Method: text(customer.MethodID),
		Topup: t.ID, Attempt: int(t.Attempt), Cents: t.Cents})
	if refusedForGood(err) {
		refused := t
		pause := decline(&refused, Decline{Code: "refused"}, s.now())
		slog.WarnContext(ctx, "topup: a charge was refused for what it is; auto-recharge is paused", "topup", ids.Format(ids.Topup, t.ID), "cause", err)
		return s.finish(ctx, t, outlook{row: refused, pause: pause})
	}
	if err != nil {
		return err // the outcome is unknown: a look comes before all else
	}
	next, err := decide(t, t.CustomerIds, sight{payment: &p}, s.now())
	if err != nil {
		return err
	}
	return s.finish(ctx, t, next)
}

// refusedForGood reports that the payment provider refused something for what it is: another try is refused too.
func refusedForGood(err error) bool {
	if err == nil {
		return false
	}
	f := fault.Of(err)
	return f.Kind == fault.NotFound || f.Code == CodeRefused
}

// finish writes an outlook; when somebody else was faster it leaves the rest to the next turn.
func (s *Service) finish(ctx context.Context, before q.Topup, next outlook) error {
	err := s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return s.apply(ctx, tx, before, next) })
	if errors.Is(err, errMoved) {
		return nil
	}
	if err == nil {
		s.tell(ctx, before, next)
	}
	return err
}
