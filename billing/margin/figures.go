package margin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/report"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Figures are what some hours brought and cost. Unknown costs are not in Cost.
type Figures struct {
	Revenue   money.Nano
	Tokens    int64
	Cost      money.Nano    // idle time included
	Idle      money.Nano    // of Cost
	GPU       time.Duration // GPU time
	Priced    time.Duration // of it, with a known price
	Busy      time.Duration // of GPU, while requests ran
	Simulated bool          // a simulated host or engine has a part in it
}

// Known reports whether all GPU time has a price, and there was some.
func (f Figures) Known() bool { return f.GPU > 0 && f.Priced == f.GPU }

func (f *Figures) add(o Figures) {
	f.Revenue, f.Tokens, f.Cost, f.Idle = f.Revenue+o.Revenue, f.Tokens+o.Tokens, f.Cost+o.Cost, f.Idle+o.Idle
	f.GPU, f.Priced, f.Busy, f.Simulated = f.GPU+o.GPU, f.Priced+o.Priced, f.Busy+o.Busy, f.Simulated || o.Simulated
}

const million = 1_000_000

// per is n × unit / of for amounts of either sign; ok is false when of is nothing.
func per(n money.Nano, unit, of int64) (money.Nano, bool) {
	if of <= 0 {
		return 0, false
	}
	if n < 0 {
		return -money.Nano(mulDiv(int64(-n), unit, of)), true
	}
	return money.Nano(mulDiv(int64(n), unit, of)), true
}

// perHour is an amount per GPU-hour.
func (f Figures) perHour(n money.Nano) (money.Nano, bool) {
	return per(n, hour.Milliseconds(), f.GPU.Milliseconds())
}

// RevenuePerGPUHour and CostPerGPUHour are over all GPU time, idle included.
func (f Figures) RevenuePerGPUHour() (money.Nano, bool) { return f.perHour(f.Revenue) }

// CostPerGPUHour is what the GPU time cost an hour.
func (f Figures) CostPerGPUHour() (money.Nano, bool) {
	n, ok := f.perHour(f.Cost)
	return n, ok && f.Known()
}

// PricePerMillion is what a million tokens brought.
func (f Figures) PricePerMillion() (money.Nano, bool) { return per(f.Revenue, million, f.Tokens) }

// CostPerMillion is what a million tokens cost, idle included.
func (f Figures) CostPerMillion() (money.Nano, bool) {
	n, ok := per(f.Cost, million, f.Tokens)
	return n, ok && f.Known()
}

// Utilisation is the busy part of GPU time, in thousandths.
func (f Figures) Utilisation() (int64, bool) {
	n, ok := per(money.Nano(f.Busy.Milliseconds()), 1000, f.GPU.Milliseconds())
	return int64(n), ok
}

// BreakEven is the utilisation at which revenue would equal cost, in thousandths; above 1000 it cannot be reached.
func (f Figures) BreakEven() (int64, bool) {
	busy, ok := f.Utilisation()
	if !ok || busy == 0 || f.Revenue <= 0 || !f.Known() {
		return 0, false
	}
	return mulDiv(int64(f.Cost), busy, int64(f.Revenue)), true
}

// Line is the figures of one model, customer or step.
type Line struct {
	Start time.Time // of a step; zero for models and customers
	ID    ids.ID    // of a model or customer; ids.Nil = hosts that served nothing
	Name  string
	Figures
}

// Report is a span's margin.
type Report struct {
	From, To time.Time // the part of what was asked for that is accrued
	Total    Figures
	Models   []Line // by cost; hosts that serve nothing are a line without a model
	Orgs     []Line // by revenue: their share of busy cost; idle time is nobody's
	Steps    []Line // oldest first
}

// Of reports on [from, to), by hours or UTC days; both ends are whole hours. Only accrued hours are in it.
func (s *Service) Of(ctx context.Context, by tenants.Actor, from, to time.Time, hourly bool) (out Report, err error) {
	if err := by.RequireOperator(); err != nil {
		return out, err
	}
	step := report.StepDay
	if hourly {
		step = report.StepHour
	}
	var costs []q.MarginUnitSumsRow
	var orgs []q.MarginOrgSumsRow
	err = s.db.InTx(ctx, db.System().ReadOnly().Snapshot(), func(tx pgx.Tx) error {
		r := q.New(tx)
		first, err := r.MarginFirstHour(ctx, q.MarginFirstHourParams{Start: from, Stop: to})
		if errors.Is(err, pgx.ErrNoRows) {
			out.From, out.To = to, to
			return nil
		} else if err != nil {
			return err
		}
		out.From, out.To = first, to
		if costs, err = r.MarginUnitSums(ctx, q.MarginUnitSumsParams{Step: step, Start: first, Stop: to}); err != nil {
			return err
		}
		orgs, err = r.MarginOrgSums(ctx, q.MarginOrgSumsParams{Start: first, Stop: to})
		return err
	})
	if err != nil || !out.From.Before(out.To) {
		return out, err
	}
	if err := s.models(ctx, by, &out, costs, step); err != nil {
		return out, fmt.Errorf("margin: revenue: %w", err)
	}
	return out, s.customers(ctx, by, &out, orgs)
}

// models joins costs and revenue by model and by step.
func (s *Service) models(ctx context.Context, by tenants.Actor, out *Report, costs []q.MarginUnitSumsRow, step string) error {
	cells, err := s.revenue.Usage(ctx, by, report.Query{From: out.From, To: out.To, Step: step, Group: report.ByModel})
	if err != nil {
		return err
	}
	models, steps := map[ids.ID]*Line{}, map[time.Time]*Line{}
	add := func(model ids.ID, name string, at time.Time, f Figures) {
		if step == report.StepDay {
			at = dayOf(at) // the first step may begin within its day
		}
		m := line(models, model)
		if m.ID = model; name != "" {
			m.Name = name
		}
		m.add(f)
		x := line(steps, at)
		x.Start = at
		x.add(f)
		out.Total.add(f)
	}
	for _, c := range cells {
		add(c.Group, c.Label, c.Start.UTC(), Figures{Revenue: c.Charged, Tokens: c.Usage.Tokens()})
	}
	for _, c := range costs {
		add(c.ModelID, "", c.Step.UTC(), Figures{Cost: money.Nano(c.CostNano), Idle: money.Nano(c.IdleNano), GPU: ms(c.GpuMs), Priced: ms(c.PricedMs), Busy: ms(c.BusyMs), Simulated: c.Simulated})
	}
	if out.Models, err = s.named(ctx, models); err != nil {
		return err
	}
	slices.SortFunc(out.Models, func(a, b Line) int { return compare(int64(b.Cost), int64(a.Cost), a.ID, b.ID) })
	out.Steps = values(steps)
	slices.SortFunc(out.Steps, func(a, b Line) int { return a.Start.Compare(b.Start) })
	return nil
}

func (s *Service) customers(ctx context.Context, by tenants.Actor, out *Report, costs []q.MarginOrgSumsRow) error {
	cells, err := s.revenue.Usage(ctx, by, report.Query{From: out.From, To: out.To, Step: report.StepTotal, Group: report.ByOrg})
	if err != nil {
		return err
	}
	orgs := map[ids.ID]*Line{}
	for _, c := range cells {
		x := line(orgs, c.Group)
		x.ID, x.Name = c.Group, c.Label
		x.add(Figures{Revenue: c.Charged, Tokens: c.Usage.Tokens()})
	}
	for _, c := range costs {
		x := line(orgs, c.OrgID)
		x.ID = c.OrgID
		x.Cost += money.Nano(c.CostNano)
		if c.Known { // a customer has no GPU time of his own: this only says that his cost is known
			x.GPU, x.Priced = time.Millisecond, time.Millisecond
		}
	}
	out.Orgs = values(orgs)
	slices.SortFunc(out.Orgs, func(a, b Line) int { return compare(int64(b.Revenue), int64(a.Revenue), a.ID, b.ID) })
	return nil
}

// named reads the names of models that had costs and no revenue.
func (s *Service) named(ctx context.Context, models map[ids.ID]*Line) ([]Line, error) {
	var list []ids.ID
	for id, m := range models {
		if m.Name == "" && id != ids.Nil {
			list = append(list, id)
		}
	}
	if len(list) > 0 {
		err := s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
			rows, err := q.New(tx).ReportLabels(ctx, list)
			for _, r := range rows {
				models[r.ID].Name = r.Label
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return values(models), nil
}

func line[K comparable](m map[K]*Line, key K) *Line {
	if m[key] == nil {
		m[key] = &Line{}
	}
	return m[key]
}

func values[K comparable](m map[K]*Line) []Line {
	out := make([]Line, 0, len(m))
	for x := range maps.Values(m) {
		out = append(out, *x)
	}
	return out
}

func compare(a, b int64, x, y ids.ID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return bytes.Compare(x[:], y[:])
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
