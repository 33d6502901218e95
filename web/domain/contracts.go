package domain

import (
	"context"
	"time"

	"millrace/billing/price"
	"millrace/internal/ids"
	"millrace/web/session"
)

// Contracts are a customer's price books by time.
func (b business) Contracts(ctx context.Context, org ids.ID) ([]price.Contract, error) {
	return b.Deps.Prices.Contracts(ctx, operator(ctx), org)
}

// AddContract gives a customer a book for a while.
func (b business) AddContract(ctx context.Context, who session.Viewer, n price.NewContract) error {
	_, err := b.Deps.Prices.AddContract(ctx, staff(who), n)
	return err
}

// EndContract moves a contract's end; zero = as soon as possible.
func (b business) EndContract(ctx context.Context, who session.Viewer, org, id ids.ID, at time.Time) error {
	_, err := b.Deps.Prices.EndContract(ctx, staff(who), org, id, at)
	return err
}
