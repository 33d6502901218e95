package domain

import (
	"context"
	"time"

	"millrace/billing/margin"
	"millrace/internal/money"
	"millrace/web/session"
)

// Margin is revenue beside cost.
func (b business) Margin(ctx context.Context, from, to time.Time, hourly bool) (margin.Report, error) {
	return b.Deps.Margin.Of(ctx, operator(ctx), from, to, hourly)
}

// Fleets are the fleets and what a GPU-hour of each costs.
func (b business) Fleets(ctx context.Context) ([]margin.Fleet, error) {
	return b.Deps.Margin.Fleets(ctx, operator(ctx))
}

// SetGPUPrice says what a GPU-hour of a fleet costs from now on.
func (b business) SetGPUPrice(ctx context.Context, who session.Viewer, f margin.Fleet, gpuHour money.Nano) error {
	return b.Deps.Margin.SetPrice(ctx, staff(who), f, gpuHour)
}
