package invoice

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Times and sizes of the running month.
const (
	soFarTimeout = 20 * time.Second       // of each statement: a page waits for it
	soFarSlow    = 250 * time.Millisecond // what took longer to read is kept ...
	soFarKept    = 5 * time.Minute        // ... for so long
	soFarMost    = 1000                   // organizations
)

// kept are running months that took long to read: every request of the month is looked at.
type kept struct {
	mu sync.Mutex
	of map[ids.ID]Invoice
}

func (k *kept) get(org ids.ID, now time.Time) (Invoice, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, ok := k.of[org]
	return i, ok && now.Sub(i.DraftedAt) < soFarKept && i.Month.Equal(ledger.MonthOf(now))
}

func (k *kept) put(i Invoice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= soFarMost {
		k.of = make(map[ids.ID]Invoice)
	}
	k.of[i.Org] = i
}

// SoFar is the running month as an invoice that is not stored: what was used, what credit paid, what will be owed, as of
// DraftedAt. It does not hold what is on its way to the ledger.
func (s *Service) SoFar(ctx context.Context, by tenants.Actor, org ids.ID) (out Invoice, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return Invoice{}, err
	}
	began := s.now()
	if i, ok := s.slow.get(org, began); ok {
		return i, nil
	}
	month := ledger.MonthOf(began)
	err = s.c.DB.InTx(ctx, db.Org(org).Snapshot().ReadOnly().Timeout(soFarTimeout), func(tx pgx.Tx) error {
		c, err := coverOf(ctx, q.New(tx), month)
		if err != nil {
			return err
		}
		sh, err := s.sheet(ctx, tx, org, c)
		if err != nil {
			return err
		}
		t := sh.total
		out = Invoice{Org: org, Month: month, State: Draft, Problem: sh.problem, Charged: t.charged(), Promo: t.promo, Prepaid: t.prepaid,
			Receivable: t.receivable, Overrun: t.overrun, Subtotal: sh.cents, Total: sh.cents, DraftedAt: began, Lines: sh.lines}
		return nil
	})
	if err != nil {
		return Invoice{}, wrapped("so far", err)
	}
	if s.now().Sub(began) > soFarSlow {
		s.slow.put(out)
	}
	return out, nil
}
