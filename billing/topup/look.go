package topup

import (
	"context"
	"slices"

	"millrace/db/q"
	"millrace/internal/fault"
)

// outlook is what a look at the payment provider leads to.
type outlook struct {
	row   q.Topup
	card  *Card // to keep; nil = none
	pause Pause // of auto-recharge; "" = none
	known bool  // the payment provider knows what became of the newest attempt
}

// look asks the payment provider and decides. It changes nothing. payment was heard of; "" = none was.
func (s *Service) look(ctx context.Context, t q.Topup, payment string) (outlook, error) {
	var customer q.PaymentCustomer
	err := s.inOrg(ctx, t.OrgID, func(r *q.Queries) (err error) {
		customer, err = r.PaymentCustomer(ctx, t.OrgID)
		return found(err, "customer at the payment provider")
	})
	if err != nil {
		return outlook{}, err
	}
	customers := withCustomer(t.CustomerIds, customer.CustomerID)
	seen, err := s.see(ctx, t, customers, payment)
	if err != nil {
		return outlook{}, err
	}
	return decide(t, customers, seen, s.now())
}

// see asks what the payment provider knows of a top-up.
func (s *Service) see(ctx context.Context, t q.Topup, customers []string, heard string) (x sight, err error) {
	if t.SessionID != nil && State(t.State) != Succeeded {
		page, err := s.c.Gateway.Session(ctx, *t.SessionID)
		if err != nil {
			return x, err
		}
		x.session = &page
		if page.Payment != "" {
			t.PaymentID = &page.Payment
		}
	}
	if Kind(t.Kind) == Auto && State(t.State) != Succeeded { // every attempt is a payment of its own
		x.payment, err = s.attempts(ctx, t, customers, heard)
		return x, err
	}
	if t.PaymentID == nil {
		return x, nil
	}
	p, err := s.c.Gateway.Payment(ctx, *t.PaymentID)
	if err != nil {
		return x, err
	}
	x.payment = &p
	return x, nil
}

// attempts finds the payment of an automatic top-up that counts, under whichever customer it was asked for, and looks at the
// one that was heard of; nil = none says anything.
func (s *Service) attempts(ctx context.Context, t q.Topup, customers []string, heard string) (best *Payment, err error) {
	asks := make([]func() (Payment, error), 0, len(customers)+1)
	for _, customer := range slices.Backward(customers) {
		asks = append(asks, func() (Payment, error) { return s.c.Gateway.FindPayment(ctx, customer, t.ID) })
	}
	if heard != "" {
		asks = append(asks, func() (Payment, error) { return s.c.Gateway.Payment(ctx, heard) })
	}
	for _, ask := range asks {
		p, err := ask()
		if fault.Is(err, fault.NotFound) || err == nil && (p.Topup != t.ID || !tells(p, t)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if best == nil || weight(p) > weight(*best) {
			best = &p
		}
	}
	return best, nil
}

// weight orders the attempts of one top-up: money that arrived, or may yet, is not hidden by a decline.
func weight(p Payment) int {
	switch p.State {
	case PaymentSucceeded:
		return 2
	case PaymentProcessing:
		return 1
	}
	return 0
}

// tells reports whether a payment says anything about an automatic top-up: money of any attempt does, and what became of the
// newest attempt.
func tells(p Payment, t q.Topup) bool {
	switch p.State {
	case PaymentSucceeded, PaymentProcessing:
		return true
	case PaymentDeclined, PaymentCanceled:
		return p.Attempt == int(t.Attempt)
	}
	return false
}

// withCustomer adds one to the customers under whom a top-up is asked for; the newest comes last.
func withCustomer(customers []string, one string) []string {
	others := slices.DeleteFunc(slices.Clone(customers), func(x string) bool { return x == one })
	return append(others, one)
}
