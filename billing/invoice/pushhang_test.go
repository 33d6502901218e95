package invoice_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/internal/ids"
)

// hanging is a till that does not answer when it is asked about one organization.
type hanging struct {
	invoice.Till
	org    ids.ID
	expire func() // the time of who is tended now is over; nil = nothing bounds it
	hung   int
	late   bool // a call could outlast the claim on its invoice
}

func (h *hanging) CreateInvoice(ctx context.Context, i invoice.TillInvoice) (invoice.TillState, error) {
	if i.Org != h.org {
		end, bounded := ctx.Deadline()
		h.late = h.late || !bounded || time.Until(end) >= invoice.ClaimFor
		return h.Till.CreateInvoice(ctx, i)
	}
	h.hung++
	if h.expire == nil {
		return invoice.TillState{}, errors.New("it would hang forever")
	}
	h.expire()
	<-ctx.Done()
	return invoice.TillState{}, ctx.Err()
}

// The payment provider does not answer about one customer, of many invoices: a turn waits for him once, for a bounded time, and
// brings everybody else's on, though they are behind him.
func TestWhoHangsHoldsUpNobodyElse(t *testing.T) {
	s := newShop(t)
	till := &hanging{Till: s.gateway.Till(), org: s.org}
	s.collect = s.collector(till)
	invoice.BoundBy(s.collect, func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		till.expire = func() { cancel(context.DeadlineExceeded) }
		return ctx, till.expire
	})
	slow := s.org
	for range 3 {
		s.bill(10_00)
		s.month = s.month.AddDate(0, 1, 0)
	}
	for turn := range 2 {
		s.clock.Advance(2 * invoice.ClaimFor)
		var others []ids.ID
		for range 2 {
			s.newOrg()
			others = append(others, s.org, s.bill(10_00))
		}
		if err := s.collect.Turn(t.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("turn %d: %v", turn, err)
		}
		if till.hung != turn+1 {
			t.Errorf("turn %d: waited %d times", turn, till.hung)
		}
		if n := s.number("SELECT count(*) FROM invoice_pushes WHERE org_id = $1 AND problem LIKE '%did not answer in time%'", slow); n == 0 {
			t.Errorf("turn %d: the operator sees nothing of it", turn)
		}
		for ; len(others) > 0; others = others[2:] {
			s.org = others[0]
			if how := s.how(others[1]); how.State != invoice.PushAsked || how.Problem != "" {
				t.Errorf("turn %d: somebody else's: %+v", turn, how)
			}
		}
	}

	// Unless it is bounded otherwise, it is by the claim: nobody else takes an invoice that is tended.
	till.org, till.late = ids.Nil, false
	s.collect = s.collector(till)
	s.clock.Advance(later)
	s.turn()
	s.org = slow
	if n := s.number("SELECT count(*) FROM invoice_pushes WHERE org_id = $1 AND state = 'asked'", slow); n != 3 || till.late {
		t.Errorf("%d of 3 were asked for; could outlast a claim: %t", n, till.late)
	}
}
