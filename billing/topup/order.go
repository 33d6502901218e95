package topup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// NewTopup asks for a top-up by a person.
type NewTopup struct {
	Org      ids.ID
	ID       ids.ID // chosen by the form: sent twice it is one top-up
	Cents    int64
	KeepCard bool // for auto-recharge
}

// Start makes a top-up and its payment page; Topup.URL leads there. Asking again for the same one gives the same page.
func (s *Service) Start(ctx context.Context, by tenants.Actor, in NewTopup) (Topup, error) {
	if err := by.Require(tenants.BillingManage, in.Org); err != nil {
		return Topup{}, err
	}
	if !s.On() {
		return Topup{}, errOff
	}
	if in.Cents < MinCents || in.Cents > MaxCents {
		return Topup{}, fault.New(fault.Invalid, "Add from %s to %s at once.", dollars(MinCents), dollars(MaxCents)).WithParam("amount")
	}
	customer, err := s.customer(ctx, in.Org)
	if err != nil {
		return Topup{}, err
	}
	for try := 1; ; try++ {
		t, err := s.startOnce(ctx, by, in, &customer)
		if errors.Is(err, errMoved) && try < looks {
			continue // the form was sent twice at once: the page is there now
		}
		return t, err
	}
}

// startOnce does so once. Errors: errMoved when somebody else brought the top-up on since its row was read.
func (s *Service) startOnce(ctx context.Context, by tenants.Actor, in NewTopup, customer *string) (Topup, error) {
	t, err := s.insert(ctx, by, in)
	if err != nil {
		return Topup{}, err
	}
	if State(t.State) != Created {
		return topupOf(t), nil
	}
	var session Session
	err = s.asCustomer(ctx, in.Org, customer, func() (err error) {
		session, err = s.openPage(ctx, t, *customer)
		return err
	})
	if err != nil {
		return Topup{}, err
	}
	t.CustomerIds = withCustomer(t.CustomerIds, *customer)
	next, err := decide(t, t.CustomerIds, sight{session: &session}, s.now())
	if err != nil {
		return Topup{}, err
	}
	if err := s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return s.apply(ctx, tx, t, next) }); err != nil {
		return Topup{}, err
	}
	return topupOf(next.row), nil
}

func (s *Service) openPage(ctx context.Context, t q.Topup, customer string) (Session, error) {
	page := s.page(t.ID)
	return s.c.Gateway.OpenCheckout(ctx, Checkout{Key: ledgerKey(t, "checkout:"+customer), Customer: customer, Topup: t.ID, Cents: t.Cents, KeepCard: t.KeepCard,
		Done: page, Back: page, Expires: t.CreatedAt.Add(pageLife)})
}

// page is where a customer sees what became of a top-up.
func (s *Service) page(id ids.ID) string {
	return s.c.PublicURL + "/billing/credits/" + ids.Format(ids.Topup, id)
}

// maxOpen bounds the payment pages of one organization that are open: the payment provider's patience is everybody's.
const maxOpen = 10

// What arrives on a page that is open already is credited all the same.
var errSuspended = fault.New(fault.Forbidden, "This organization is suspended: no credit can be added. Contact support.").WithCode("organization_suspended")

// insert makes the row, or finds the one that the same form made before.
func (s *Service) insert(ctx context.Context, by tenants.Actor, in NewTopup) (t q.Topup, err error) {
	now := s.now()
	giveUp := now.Add(afterPage)
	err = s.system(ctx, func(tx pgx.Tx, r *q.Queries) (err error) {
		org, err := r.GetOrg(ctx, in.Org)
		if err != nil {
			return found(err, "organization")
		}
		if org.SuspendedAt != nil {
			return errSuspended
		}
		open, err := r.OpenTopups(ctx, q.OpenTopupsParams{OrgID: in.Org, Since: now.Add(-pageLife)})
		if err != nil {
			return fmt.Errorf("topup: count: %w", err)
		}
		if open >= maxOpen {
			if t, err = r.Topup(ctx, q.TopupParams{OrgID: in.Org, ID: in.ID}); err == nil {
				return nil
			}
			return fault.New(fault.Limited, "%d payment pages are open already. Finish one of them, or wait half an hour.", maxOpen).WithCode("too_many_topups")
		}
		t, err = r.InsertTopup(ctx, q.InsertTopupParams{OrgID: in.Org, ID: in.ID, Kind: string(Manual), Cents: in.Cents, KeepCard: in.KeepCard, CreatedBy: by.Name(),
			Now: now, NextAt: &giveUp})
		if err == nil {
			return audit.Append(ctx, tx, by, audit.Change{Org: in.Org, Action: "topup.start", Target: ids.Format(ids.Topup, in.ID),
				After: map[string]any{"amount_usd": nano(in.Cents).String(), "keep_card": in.KeepCard}, At: now})
		}
		if err = found(err, "top-up"); !fault.Is(err, fault.NotFound) {
			return err
		}
		t, err = r.Topup(ctx, q.TopupParams{OrgID: in.Org, ID: in.ID})
		return found(err, "top-up")
	})
	if err == nil && (t.Cents != in.Cents || Kind(t.Kind) != Manual) {
		return q.Topup{}, fault.New(fault.Conflict, "This form was sent already, with another amount. Load it anew.").WithCode("form_sent")
	}
	return t, err
}

// customer is the organization at the payment provider, made when it is first needed.
func (s *Service) customer(ctx context.Context, org ids.ID) (id string, err error) {
	var known q.PaymentCustomer
	err = s.inOrg(ctx, org, func(r *q.Queries) (err error) {
		known, err = r.PaymentCustomer(ctx, org)
		return found(err, "customer at the payment provider")
	})
	if err == nil || !fault.Is(err, fault.NotFound) {
		return known.CustomerID, err
	}
	if id, err = s.createCustomer(ctx, org, ""); err != nil {
		return "", err
	}
	err = s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		if err := r.InsertPaymentCustomer(ctx, q.InsertPaymentCustomerParams{OrgID: org, CustomerID: id, Now: s.now()}); err != nil {
			return fmt.Errorf("topup: keep a customer: %w", err)
		}
		id, err = customerOf(ctx, r, org) // somebody else's, if that one was faster
		return err
	})
	return id, err
}

func customerOf(ctx context.Context, r *q.Queries, org ids.ID) (string, error) {
	row, err := r.PaymentCustomer(ctx, org)
	return row.CustomerID, found(err, "customer at the payment provider")
}

// asCustomer does what needs the organization's customer; when that is deleted over there, or the key leads to another account
// now, once more with another one.
func (s *Service) asCustomer(ctx context.Context, org ids.ID, customer *string, do func() error) error {
	err := do()
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	if *customer, err = s.anotherCustomer(ctx, org, *customer); err != nil {
		return err
	}
	return do()
}

// anotherCustomer makes the organization known anew at a payment provider that knows it no more.
func (s *Service) anotherCustomer(ctx context.Context, org ids.ID, gone string) (id string, err error) {
	fresh, err := s.createCustomer(ctx, org, gone)
	if err != nil {
		return "", err
	}
	err = s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		if err := r.ReplacePaymentCustomer(ctx, q.ReplacePaymentCustomerParams{OrgID: org, Fresh: fresh, Gone: gone, Now: s.now()}); err != nil {
			return fmt.Errorf("topup: replace a customer: %w", err)
		}
		id, err = customerOf(ctx, r, org)
		return err
	})
	return id, err
}

func (s *Service) createCustomer(ctx context.Context, org ids.ID, after string) (id string, err error) {
	in := NewCustomer{Org: org, After: after}
	err = s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		row, err := r.GetOrg(ctx, org)
		if err != nil {
			return found(err, "organization")
		}
		in.Name = row.Name
		people, err := r.BillingPeople(ctx, org)
		if len(people) > 0 {
			in.Email = people[0]
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return s.c.Gateway.CreateCustomer(ctx, in)
}

// Look shows a top-up to a customer who comes back from the payment page, as it is now at the payment provider.
func (s *Service) Look(ctx context.Context, by tenants.Actor, org, id ids.ID) (Topup, error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return Topup{}, err
	}
	var t q.Topup
	err := s.inOrg(ctx, org, func(r *q.Queries) (err error) {
		t, err = r.Topup(ctx, q.TopupParams{OrgID: org, ID: id})
		return found(err, "top-up")
	})
	if err != nil || over(State(t.State)) || !s.On() {
		return topupOf(t), err
	}
	fresh, err := s.Fulfil(ctx, org, id)
	if fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Upstream) || fault.Is(err, fault.NotFound) {
		return topupOf(t), nil // what is known is better than nothing; the worker looks again
	}
	return fresh, err
}

// MaxTopups bounds a list.
const MaxTopups = 100

// List gives an organization's newest top-ups.
func (s *Service) List(ctx context.Context, by tenants.Actor, org ids.ID, limit int) (out []Topup, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return nil, err
	}
	err = s.inOrg(ctx, org, func(r *q.Queries) error {
		rows, err := r.Topups(ctx, q.TopupsParams{OrgID: org, MaxRows: int32(min(max(limit, 1), MaxTopups))})
		for _, row := range rows {
			out = append(out, topupOf(row))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("topup: list: %w", err)
	}
	return out, nil
}
