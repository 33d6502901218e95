package invoice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	turnEvery     = time.Minute
	draftLimit    = 30 * time.Minute // of a turn: what it does not get to the next one does
	finalizeLimit = 10 * time.Minute // the same of what becomes final
	oneLimit      = 2 * time.Minute  // of one invoice that becomes final
	again         = time.Hour        // until drafts with a problem are drawn anew, and until what failed is tried again
	fresh         = 24 * time.Hour   // for so long a drafted month is looked through again for who owes something after all
	readyBatch    = 100
	maxMonths     = 1200 // that are looked through: a hundred years
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

// Turn does what is due now; redraw says that drafts with a problem are drawn anew, and that months that were drafted not long
// ago are looked through for who owes something after all: what committed late.
func (s *Service) Turn(ctx context.Context, redraw bool) error {
	return errors.Join(s.draftDue(ctx, redraw), s.finalizeReady(ctx))
}

// draftDue drafts what is due. Who failed rests for an hour, and a month in which nobody else is left to be drafted rests with them.
func (s *Service) draftDue(ctx context.Context, redraw bool) error {
	ctx, cancel := context.WithTimeout(ctx, draftLimit)
	defer cancel()
	months, err := s.due(ctx, redraw)
	if err != nil {
		return err
	}
	var errs []error
	for _, month := range months {
		if s.rests.has(rest{month: month}, s.now()) {
			continue
		}
		_, err := s.draftAll(ctx, month, func(org ids.ID) bool { return s.rests.has(rest{month: month, id: org}, s.now()) })
		switch {
		case err == nil, fault.Of(err).Code == codeOnItsWay: // a log that is behind is the rater's alarm
		case ctx.Err() != nil:
			errs = append(errs, err)
		default:
			if s.rests.of(month, s.now()) {
				s.rests.begin(rest{month: month}, s.now())
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// due lists the frozen months that were not drafted yet; to redraw, those too that were not without a problem, or only just.
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
			late, err := r.FreshMonths(ctx, q.FreshMonthsParams{Since: s.now().Add(-fresh), Now: s.now(), MaxRows: maxMonths})
			if err != nil {
				return err
			}
			for _, m := range late {
				if !slices.Contains(months, m) {
					months = append(months, m)
				}
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

// finalizeReady makes every ready invoice final. One that is refused does not hold up the others, nor does one that hangs; who
// failed rests for an hour.
func (s *Service) finalizeReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, finalizeLimit)
	defer cancel()
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
			if s.rests.has(rest{id: r.ID}, s.now()) {
				continue
			}
			if err := s.finalizeOne(ctx, r); err != nil && !fault.Is(err, fault.Conflict) {
				s.rests.begin(rest{id: r.ID}, s.now())
				errs = append(errs, fmt.Errorf("invoice: make %s final: %w", ids.Format(ids.Invoice, r.ID), err))
			}
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func (s *Service) finalizeOne(ctx context.Context, r q.ReadyInvoicesRow) error {
	ctx, cancel := context.WithTimeout(ctx, oneLimit)
	defer cancel()
	_, err := s.Finalize(ctx, tenants.System(), r.OrgID, r.ID)
	return err
}
