package invoice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
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
	for ctx.Err() == nil {
		p, err := c.claim(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("invoice: what is due: %w", err))...)
		}
		errs = append(errs, c.tendInTime(ctx, p))
	}
	return errors.Join(errs...)
}

func (c *Collector) tendInTime(ctx context.Context, p q.InvoicePush) error {
	ctx, cancel := context.WithTimeout(ctx, tendLimit)
	defer cancel()
	return c.Tend(ctx, p.OrgID, p.InvoiceID)
}

// claim takes an invoice that is due; no other process takes it meanwhile.
func (c *Collector) claim(ctx context.Context) (p q.InvoicePush, err error) {
	now := c.s.now()
	err = c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		p, err = r.ClaimDuePush(ctx, q.ClaimDuePushParams{Until: now.Add(claimFor), Now: &now})
		return err
	})
	return p, err
}
