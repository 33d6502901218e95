package domain

import (
	"context"
	"time"

	"millrace/billing/month"
	"millrace/web/session"
)

// Months are the accounting months.
func (b business) Months(ctx context.Context) ([]month.Line, error) {
	return b.Deps.Months.List(ctx, operator(ctx))
}

// Month is one month by the ledger, or as it was closed.
func (b business) Month(ctx context.Context, start time.Time) (month.Report, []month.Reason, error) {
	r, err := b.Deps.Months.Report(ctx, operator(ctx), start)
	if err != nil || r.State == month.Closed {
		return r, nil, err
	}
	reasons, err := b.Deps.Months.CheckClose(ctx, operator(ctx), start)
	return r, reasons, err
}

// DraftMonth looks a month through again for who owes something and has no final invoice.
func (b business) DraftMonth(ctx context.Context, who session.Viewer, start time.Time) (int, error) {
	return b.Deps.Invoices.Draft(ctx, staff(who), start)
}

// CloseMonth keeps a month as it is.
func (b business) CloseMonth(ctx context.Context, who session.Viewer, start time.Time, typed string) error {
	_, err := b.Deps.Months.Close(ctx, staff(who), start, typed)
	return err
}
