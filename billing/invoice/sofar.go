package invoice

import (
	"context"
	"errors"
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
	soFarLimit = 20 * time.Second       // of a reading: a page waits for it
	soFarSlow  = 250 * time.Millisecond // what took longer to read is kept ...
	soFarKept  = 5 * time.Minute        // ... for so long, and so is that it could not be read
	soFarMost  = 1000                   // organizations
)

// soFars are the running months of organizations. Of each, one is read at a time.
type soFars struct {
	mu sync.Mutex
	of map[ids.ID]*soFar
}

// soFar is an organization's: who holds turn reads it, and may touch the rest.
type soFar struct {
	turn chan struct{}
	last reading
}

// reading is how an organization's month was read last.
type reading struct {
	began time.Time
	limit time.Duration // that it had
	kept  bool
	out   Invoice
	err   error
}

// find gives an organization's place.
func (k *soFars) find(org ids.ID) *soFar {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= soFarMost {
		k.of = make(map[ids.ID]*soFar)
	}
	s := k.of[org]
	if s == nil {
		s = &soFar{turn: make(chan struct{}, 1)}
		s.turn <- struct{}{}
		k.of[org] = s
	}
	return s
}

// still reports whether a kept reading is good for who asks now and would have so much time for his own.
func (r *reading) still(now time.Time, limit time.Duration) bool {
	if !r.kept || now.Sub(r.began) >= soFarKept {
		return false
	}
	if r.err != nil {
		return limit <= r.limit
	}
	return r.out.Month.Equal(ledger.MonthOf(now))
}

// SoFar is the running month as an invoice that is not stored: what was used, what credit paid, what will be owed, as of
// DraftedAt. It does not hold what is on its way to the ledger. It takes no longer than its context has; what failed within that
// is not tried again for some minutes by who has no more time.
func (s *Service) SoFar(ctx context.Context, by tenants.Actor, org ids.ID) (Invoice, error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return Invoice{}, err
	}
	limit := soFarLimit
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end).Round(time.Second)) // who has as much time has not always as many microseconds
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, soFarLimit)
	defer cancel()
	mine := s.running.find(org)
	asked := s.now()
	select {
	case <-mine.turn:
	case <-ctx.Done():
		return Invoice{}, wrapped("so far", ctx.Err())
	}
	defer func() { mine.turn <- struct{}{} }()
	if last := &mine.last; last.still(asked, limit) {
		return last.out, last.err
	}
	began := s.now()
	out, err := s.readSoFar(ctx, org, began)
	if errors.Is(caller.Err(), context.Canceled) {
		return Invoice{}, wrapped("so far", caller.Err()) // who asked has left: that says nothing about the month
	}
	mine.last = reading{began: began, limit: limit, kept: err != nil || s.now().Sub(began) > soFarSlow, out: out, err: wrapped("so far", err)}
	return out, mine.last.err
}

// readSoFar reads it by rollups, and where these do not say what the ledger says by requests.
func (s *Service) readSoFar(ctx context.Context, org ids.ID, now time.Time) (out Invoice, err error) {
	month := ledger.MonthOf(now)
	rolled := func(ctx context.Context, tx q.DBTX, org ids.ID, parts []part) ([]used, error) {
		return usedSoFar(ctx, tx, org, month, parts)
	}
	err = s.c.DB.InTx(ctx, db.Org(org).Snapshot().ReadOnly().Timeout(soFarLimit), func(tx pgx.Tx) error {
		c, err := coverOf(ctx, q.New(tx), month)
		if err != nil {
			return err
		}
		months, err := c.days(ctx, q.New(tx), org)
		if err != nil {
			return err
		}
		sh, err := s.sheet(ctx, tx, org, c, months, rolled)
		if err == nil && sh.problem != "" {
			sh, err = s.sheet(ctx, tx, org, c, months, usedBy)
		}
		if err != nil {
			return err
		}
		t := sh.total
		out = Invoice{Org: org, Month: month, State: Draft, Problem: sh.problem, Charged: t.charged(), Promo: t.promo, Prepaid: t.prepaid,
			Receivable: t.receivable, Overrun: t.overrun, Subtotal: sh.cents, Total: sh.cents, DraftedAt: now, Lines: sh.lines}
		return nil
	})
	return out, err
}
