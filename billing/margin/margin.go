// Package margin says what serving costs and what is left: GPU-hours at the price of their fleet, laid on units, models and
// customers, beside the revenue of the same hours.
//
// It owns the prices of GPU-hours, the accrual by the hour and the figures made of both. It does not own hosts and units
// (agents, serving) nor revenue (billing/report): it reads their rows. It is for operators only; nothing of it is a tenant's.
//
// Words. Busy: while at least one request ran on a unit. Idle: the rest of its time, and a host that serves nothing.
// Utilisation: the busy part of GPU time. Break-even utilisation: the one at which revenue, at what a busy hour brings now,
// equals the cost. Weighted tokens: tokens by the work they are (Weights); they share the busy cost of a unit out.
//
// Invariants: the parts of an hour's cost add up to it, to the nano-dollar; what has no price is unknown and never free; an hour
// is made anew as a whole, so doing it twice changes nothing; a price never changes hours that are final.
package margin

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/report"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Weights are how much work a token is, in thousandths of an input token that is computed. Decoding reads all weights for
// every token of a batch; a cached token is only attended to.
var Weights = [usage.NumClasses]int64{usage.Input: 1000, usage.Cached: 100, usage.CacheWrite: 1000, usage.Output: 4000, usage.Reasoning: 4000,
	usage.Image: 1000, usage.Audio: 1000}

// Service keeps prices and answers. It is safe for concurrent use.
type Service struct {
	db      *db.DB
	clock   clock.Clock
	revenue *report.Service
}

// New makes a service. Revenue is what the report says of the same hours.
func New(d *db.DB, c clock.Clock, revenue *report.Service) *Service {
	return &Service{db: d, clock: c, revenue: revenue}
}

// Fleet is the hosts of one provider, region and kind of capacity.
type Fleet struct {
	Provider, Region, Kind string
	Hosts                  int64
	GPUHour                *money.Nano // in force; nil = nobody has said
}

// Fleets lists the fleets that have hosts or a price.
func (s *Service) Fleets(ctx context.Context, by tenants.Actor) (out []Fleet, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).MarginFleets(ctx, s.clock.Now())
		out = make([]Fleet, len(rows))
		for i, r := range rows {
			out[i] = Fleet{Provider: r.Provider, Region: r.Region, Kind: r.CapacityKind, Hosts: r.Hosts}
			if r.GpuHourNano >= 0 {
				n := money.Nano(r.GpuHourNano)
				out[i].GPUHour = &n
			}
		}
		return err
	})
	return out, err
}

// MaxGPUHour is the dearest price that is believed: a hundred times what any GPU costs.
const MaxGPUHour = 1000 * money.NanoPerUSD

// SetPrice sets what a GPU-hour of a fleet costs from the running hour on.
func (s *Service) SetPrice(ctx context.Context, by tenants.Actor, f Fleet, gpuHour money.Nano) error {
	switch {
	case by.RequireOperator() != nil:
		return by.RequireOperator()
	case gpuHour < 0 || gpuHour > MaxGPUHour:
		return fault.New(fault.Invalid, "A GPU-hour costs between 0 and %s USD.", MaxGPUHour).WithParam("price")
	}
	now := s.clock.Now().UTC()
	err := s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		r := q.New(tx)
		fleets, err := r.MarginFleets(ctx, now)
		if err != nil {
			return err
		}
		var before any
		known := false
		for _, x := range fleets {
			if x.Provider == f.Provider && x.Region == f.Region && x.CapacityKind == f.Kind {
				known = true
				if x.GpuHourNano >= 0 {
					before = map[string]string{"gpu_hour": money.Nano(x.GpuHourNano).String()}
				}
			}
		}
		if !known {
			return fault.New(fault.NotFound, "No host is in this fleet.")
		}
		at := now.Truncate(time.Hour)
		n, err := r.InsertGPUPrice(ctx, q.InsertGPUPriceParams{ID: ids.New(), Provider: f.Provider, Region: f.Region, CapacityKind: f.Kind,
			GpuHourNano: int64(gpuHour), EffectiveAt: at, CreatedBy: by.Name(), CreatedAt: now})
		if err == nil && n == 0 { // the running hour has its price: this one is the next hour's
			at = at.Add(time.Hour)
			n, err = r.InsertGPUPrice(ctx, q.InsertGPUPriceParams{ID: ids.New(), Provider: f.Provider, Region: f.Region, CapacityKind: f.Kind,
				GpuHourNano: int64(gpuHour), EffectiveAt: at, CreatedBy: by.Name(), CreatedAt: now})
		}
		if err == nil && n == 0 {
			return fault.New(fault.Conflict, "This fleet has a price for this hour and the next. Come back in an hour.").WithParam("price")
		}
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "gpu_price.set", Target: f.Provider + "/" + f.Region + "/" + f.Kind,
			Before: before, After: map[string]string{"gpu_hour": gpuHour.String(), "effective_at": at.Format(time.RFC3339)}, At: now})
	})
	if err != nil {
		return err
	}
	if err := s.Accrue(ctx); err != nil { // the price holds all the same; the worker makes up for it
		slog.WarnContext(ctx, "margin: a new price is not accrued yet", "cause", err)
	}
	return nil
}
