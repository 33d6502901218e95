package invoice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
)

// Times of the collector's worker.
const (
	collectEvery = 10 * time.Second
	collectLimit = 10 * time.Minute // of a turn
	claimFor     = 5 * time.Minute  // longer than one invoice is tended
	tendLimit    = 4 * time.Minute
	compareEvery = time.Hour
)

// Run asks for the money of final invoices, reminds whoever does not pay, and compares with the payment provider's list
// every hour, until ctx ends. Several may run.
func (c *Collector) Run(ctx context.Context) error {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	var compared time.Time
	for ctx.Err() == nil {
		if err := c.Turn(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "invoice: some invoices wait for the next turn", "cause", err)
		}
		if now := c.s.now(); c.On() && now.Sub(compared) >= compareEvery {
			compared = now
			if _, err := c.Compare(ctx); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "invoice: could not compare with the payment provider's list", "cause", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return ctx.Err()
}

// Turn does what is due now.
func (c *Collector) Turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, collectLimit)
	defer cancel()
	errs := []error{c.Dun(ctx)}
	if !c.On() {
		return errs[0]
	}
	now := c.s.now()
	err := c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		if _, err := r.BeginInvoicePushes(ctx, q.BeginInvoicePushesParams{Now: now, Least: LeastPush}); err != nil {
			return err
		}
		return r.WakeMovedPushes(ctx, now)
	})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("invoice: what is new: %w", err))...)
	}
	hanging := []ids.ID{} // organizations: nobody waits for one of them twice in a turn
	for ctx.Err() == nil {
		p, err := c.claim(ctx, hanging)
		if errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("invoice: what is due: %w", err))...)
		}
		hangs, err := c.tendInTime(ctx, p)
		errs = append(errs, err)
		if hangs {
			hanging = append(hanging, p.OrgID)
		}
	}
	return errors.Join(errs...)
}

// tendInTime tends one invoice, within its time; hangs = it was not enough.
func (c *Collector) tendInTime(ctx context.Context, p q.InvoicePush) (hangs bool, err error) {
	ctx, cancel := c.inTime(ctx)
	defer cancel()
	err = c.Tend(ctx, p.OrgID, p.InvoiceID)
	return err != nil && ctx.Err() != nil, err
}

func withinTendLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, tendLimit)
}

// claim takes an invoice that is due; no other process takes it meanwhile.
func (c *Collector) claim(ctx context.Context, hanging []ids.ID) (p q.InvoicePush, err error) {
	now := c.s.now()
	err = c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		p, err = r.ClaimDuePush(ctx, q.ClaimDuePushParams{Until: now.Add(claimFor), Now: &now, Hanging: hanging})
		return err
	})
	return p, err
}
