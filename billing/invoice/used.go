package invoice

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"millrace/billing/price"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// used is requests that cost the same per token: of one month, price version, tier, window of the week and step of the
// prompt's length.
type used struct {
	month          time.Time
	model, version ids.ID
	service        usage.Service
	events         int64
	tokens         usage.Vector // sums: more than one event may have
	prices         usage.Prices
}

// usedBy reads what an organization used, with the prices that the rater charged by.
func usedBy(ctx context.Context, tx q.DBTX, org ids.ID, parts []part) ([]used, error) {
	var all []used
	for _, p := range parts {
		rows, err := q.New(tx).CoveredUsage(ctx, q.CoveredUsageParams{OrgID: org, FromDay: p.fromDay, ToDay: p.toDay, FromID: p.fromID, FreezeID: p.toID})
		if err != nil {
			return nil, fmt.Errorf("invoice: covered usage: %w", err)
		}
		some, err := priced(ctx, tx, org, p, rows)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// A request's id and its start are made within edge of each other, and quarters are what rollups add up.
const (
	quarter = 15 * time.Minute
	edge    = time.Hour
)

// usedSoFar reads the same of a running month: its own usage by rollups, which are few where requests are millions. What was
// late for the months before is read request by request.
func usedSoFar(ctx context.Context, tx q.DBTX, org ids.ID, month time.Time, parts []part) ([]used, error) {
	rolled, err := q.New(tx).RolledUsage(ctx, q.RolledUsageParams{OrgID: org, FirstQuarterEnd: month.Add(quarter), ToAt: month.AddDate(0, 1, 0), FirstDay: day(month),
		EdgeID: ids.Floor(month.Add(quarter + edge))})
	if err != nil {
		return nil, fmt.Errorf("invoice: usage by rollups: %w", err)
	}
	rows := make([]q.CoveredUsageRow, len(rolled))
	for i, r := range rolled {
		rows[i] = q.CoveredUsageRow{UsageMonth: month, ModelID: r.ModelID, PriceVersionID: r.PriceVersionID, ServiceTier: r.ServiceTier, Events: r.Events, Input: r.Input,
			Cached: r.Cached, CacheWrite: r.CacheWrite, Output: r.Output, Reasoning: r.Reasoning, Image: r.Image, Audio: r.Audio, Requests: r.Requests}
	}
	own, err := priced(ctx, tx, org, parts[0], rows)
	if err != nil {
		return nil, err
	}
	late, err := usedBy(ctx, tx, org, parts[1:])
	return append(own, late...), err
}

// priced gives every sum its prices. Where those depend on length or time, the requests are read instead.
func priced(ctx context.Context, tx q.DBTX, org ids.ID, p part, rows []q.CoveredUsageRow) ([]used, error) {
	versions, err := versionsOf(ctx, tx, rows)
	if err != nil {
		return nil, err
	}
	var all []used
	split := make(map[ids.ID]bool)
	for _, r := range rows {
		v, ok := versions[r.PriceVersionID]
		switch {
		case !ok:
			return nil, fmt.Errorf("invoice: price version %s is not known", r.PriceVersionID)
		case len(v.Terms.Tiers)+len(v.Terms.Windows) == 0:
			all = append(all, used{month: r.UsageMonth, model: r.ModelID, version: v.ID, service: usage.Service(r.ServiceTier), events: r.Events,
				tokens: vector(r), prices: v.PricesIn(0, usage.Service(r.ServiceTier), 0)})
		case !split[v.ID]:
			split[v.ID] = true
			some, err := usedOf(ctx, tx, org, p, &v)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	return all, nil
}

// usedOf reads the usage of a version whose prices depend on length or time.
func usedOf(ctx context.Context, tx q.DBTX, org ids.ID, p part, v *price.Version) ([]used, error) {
	a := q.CoveredUsageOfParams{OrgID: org, FromDay: p.fromDay, ToDay: p.toDay, FromID: p.fromID, FreezeID: p.toID, Version: v.ID, Above: v.Terms.Thresholds()}
	a.Numbers, a.FromMinutes, a.ToMinutes = v.Terms.WindowMinutes()
	rows, err := q.New(tx).CoveredUsageOf(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("invoice: covered usage of a version: %w", err)
	}
	all := make([]used, len(rows))
	for i, r := range rows {
		all[i] = used{month: r.UsageMonth, model: r.ModelID, version: v.ID, service: usage.Service(r.ServiceTier), events: r.Events,
			prices: v.PricesIn(int(r.Win), usage.Service(r.ServiceTier), int(r.Step)),
			tokens: usage.Vector{usage.Input: r.Input, usage.Cached: r.Cached, usage.CacheWrite: r.CacheWrite, usage.Output: r.Output,
				usage.Reasoning: r.Reasoning, usage.Image: r.Image, usage.Audio: r.Audio, usage.Requests: r.Requests}}
	}
	return all, nil
}

func vector(r q.CoveredUsageRow) usage.Vector {
	return usage.Vector{usage.Input: r.Input, usage.Cached: r.Cached, usage.CacheWrite: r.CacheWrite, usage.Output: r.Output,
		usage.Reasoning: r.Reasoning, usage.Image: r.Image, usage.Audio: r.Audio, usage.Requests: r.Requests}
}

func versionsOf(ctx context.Context, tx q.DBTX, rows []q.CoveredUsageRow) (map[ids.ID]price.Version, error) {
	var models []ids.ID
	for _, r := range rows {
		if !slices.Contains(models, r.ModelID) {
			models = append(models, r.ModelID)
		}
	}
	list, err := price.OfModels(ctx, tx, models)
	if err != nil {
		return nil, err
	}
	of := make(map[ids.ID]price.Version, len(list))
	for _, v := range list {
		of[v.ID] = v
	}
	return of, nil
}

// halfEven divides and rounds half to even.
func halfEven(n *big.Int, by int64) int64 {
	d := big.NewInt(by)
	quotient, rest := new(big.Int).QuoRem(n, d, new(big.Int))
	switch twice := new(big.Int).Abs(new(big.Int).Lsh(rest, 1)); twice.Cmp(d) {
	case 1:
		quotient.Add(quotient, big.NewInt(int64(n.Sign())))
	case 0:
		if quotient.Bit(0) == 1 {
			quotient.Add(quotient, big.NewInt(int64(n.Sign())))
		}
	}
	return quotient.Int64()
}

func cents(n money.Nano) int64 { return halfEven(big.NewInt(int64(n)), int64(NanoPerCent)) }
