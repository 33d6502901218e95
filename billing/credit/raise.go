package credit

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/period"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// MaxRaise is the longest that a cap can be raised for: beyond it, it is another cap.
const MaxRaise = 31 * 24 * time.Hour

// RaiseCap allows more than a hard cap until a moment. Then the cap holds again by the database's clock, and what was spent
// counts; no job has to lower it.
func (d *Desk) RaiseCap(ctx context.Context, by tenants.Actor, org, id ids.ID, to money.Nano, until time.Time) (Cap, error) {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return Cap{}, err
	}
	now := d.now()
	switch {
	case to <= 0 || to > MaxCap:
		return Cap{}, fault.New(fault.Invalid, "A cap lies between 0 and %s USD.", MaxCap).WithParam("to")
	case !until.After(now) || until.Sub(now) > MaxRaise:
		return Cap{}, fault.New(fault.Invalid, "A raise ends in the future, at most 31 days from now.").WithParam("until")
	}
	var set Cap
	err := d.change(ctx, org, func(tx pgx.Tx) error {
		queries := q.New(tx)
		spans, err := d.runningSpans(ctx, queries, org)
		if err != nil {
			return err
		}
		row, err := queries.LockCap(ctx, q.LockCapParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "cap")
		}
		c := capOf(row)
		before := c
		switch {
		case c.AlertOnly:
			return fault.New(fault.Conflict, "This cap only alerts: nothing has to be raised.").WithCode("cap_alerts_only")
		case to <= c.Amount:
			return fault.New(fault.Invalid, "Raise it above the cap of %s USD.", c.Amount).WithParam("to")
		}
		c.Raised, c.RaisedUntil = to, until.UTC().Truncate(time.Microsecond)
		if set, err = changeCap(ctx, queries, org, c, spans[c.Period].Start); err != nil {
			return err
		}
		if err := noteAlerts(ctx, queries, org, set, spans[c.Period].Start); err != nil {
			return err
		}
		return d.audit(ctx, tx, by, org, "cap.raise", ids.Format(capPrefix, id), before, set)
	})
	return set, err
}

// endRaises forgets raises that are over, notes the thresholds that are passed without them, and makes gateways give back
// what they still hold above the caps.
func (d *Desk) endRaises(ctx context.Context) error {
	var orgs []ids.ID
	err := d.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		orgs = nil
		queries := q.New(tx)
		rows, err := queries.EndRaises(ctx)
		if err != nil {
			return err
		}
		var budgets q.NoteAlertsParams
		for _, r := range rows {
			spans, err := d.runningSpans(ctx, queries, r.OrgID)
			if err != nil {
				return err
			}
			c := Cap{Scope: Scope(r.Scope), ScopeID: r.ScopeID, Period: period.Kind(r.Period)}
			if err := addBudgets(ctx, queries, &budgets, r.OrgID, c, spans[c.Period].Start); err != nil {
				return err
			}
			orgs = append(orgs, r.OrgID)
		}
		if len(budgets.Ids) == 0 {
			return nil
		}
		return queries.NoteAlerts(ctx, budgets)
	})
	if err != nil {
		return fmt.Errorf("credit: end raises: %w", err)
	}
	for _, org := range orgs {
		Tell(ctx, d.notify, org)
	}
	return nil
}

// tendEvery is how often what ends by the clock is looked for.
const (
	tendEvery = 2 * time.Second
	tendLimit = time.Minute
)

// Run tends what ends by the clock until ctx ends: raised caps, and credit with an end. rated tells up to which moment all
// usage is in the books; known is false while nobody knows.
func (d *Desk) Run(ctx context.Context, rated func() (through time.Time, known bool)) error {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := d.tend(ctx, rated); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "credit: what ends by the clock waits for the next turn", "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return ctx.Err()
}

func (d *Desk) tend(ctx context.Context, rated func() (time.Time, bool)) error {
	ctx, cancel := context.WithTimeout(ctx, tendLimit)
	defer cancel()
	if err := d.endRaises(ctx); err != nil {
		return err
	}
	if through, known := rated(); known {
		_, err := d.Expire(ctx, through)
		return err
	}
	return nil
}
