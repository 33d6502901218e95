package invoice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Times and sizes of the worker.
const (
	turnEvery  = time.Minute
	turnLimit  = 30 * time.Minute
	again      = time.Hour // until drafts with a problem are drawn anew
	readyBatch = 100
	maxMonths  = 1200 // that are looked through: a hundred years
)

// Run drafts months as they freeze and makes what is ready final, until ctx ends. Several may run: whatever one does is done
// once, and what a crash leaves undone the next turn does.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(turnEvery)
	defer tick.Stop()
	var redrawn time.Time
	for ctx.Err() == nil {
		now := s.now()
		redraw := now.Sub(redrawn) >= again
		if redraw {
			redrawn = now
		}
		if err := s.Turn(ctx, redraw); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "invoice: some invoices wait for the next turn", "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return ctx.Err()
}

// Turn does what is due now; redraw says that drafts with a problem are drawn anew.
func (s *Service) Turn(ctx context.Context, redraw bool) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	months, err := s.due(ctx, redraw)
	if err != nil {
		return err
	}
	var errs []error
	for _, month := range months {
		if _, err := s.Draft(ctx, tenants.System(), month); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, s.finalizeReady(ctx))...)
}

// due lists the frozen months that were not drafted yet, or not without a problem.
func (s *Service) due(ctx context.Context, redraw bool) (months []time.Time, err error) {
	err = s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		r := q.New(tx)
		months = nil
		first, err := r.InvoicingStart(ctx)
		if err != nil {
			return err
		}
		list, err := r.DraftedMonths(ctx, maxMonths)
		if err != nil {
			return err
		}
		if redraw {
			if months, err = r.MonthsWithProblems(ctx, maxMonths); err != nil {
				return err
			}
		}
		drafted := make(map[time.Time]bool, len(list))
		for _, m := range append(list, months...) {
			drafted[m] = true
		}
		for m := first; !s.now().Before(FreezeOf(m).Add(draftAfter)); m = m.AddDate(0, 1, 0) {
			if !drafted[m] {
				months = append(months, m)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("invoice: which months are due: %w", err)
	}
	return months, nil
}

// finalizeReady makes every ready invoice final. One that is refused does not hold up the others.
func (s *Service) finalizeReady(ctx context.Context) error {
	var errs []error
	for after := ids.Nil; ctx.Err() == nil; {
		var rows []q.ReadyInvoicesRow
		err := s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
			rows, err = q.New(tx).ReadyInvoices(ctx, q.ReadyInvoicesParams{After: after, MaxRows: readyBatch})
			return err
		})
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("invoice: what is ready: %w", err))...)
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			after = r.ID
			if _, err := s.Finalize(ctx, tenants.System(), r.OrgID, r.ID); err != nil && !fault.Is(err, fault.Conflict) {
				errs = append(errs, fmt.Errorf("invoice: make %s final: %w", ids.Format(ids.Invoice, r.ID), err))
			}
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}
