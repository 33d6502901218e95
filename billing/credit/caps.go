package credit

import (
	"context"
	"errors"
	"fmt"
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

// MaxCap is the highest cap or credit limit. Every sum of the raises fits an int64 with it.
const MaxCap money.Nano = 1_000_000_000 * money.NanoPerUSD

// Cap bounds the spending of a scope per period. A hard one refuses what does not fit before it runs; the other kind only
// alerts. Both alert at 50, 80 and 100 % of what is allowed, once per period and amount.
type Cap struct {
	ID        ids.ID // given by SetCap
	Scope     Scope
	ScopeID   ids.ID // of the key, project or organization
	Period    period.Kind
	Amount    money.Nano
	AlertOnly bool

	Raised      money.Nano // what is allowed until RaisedUntil; 0 = it is not raised. RaiseCap's alone
	RaisedUntil time.Time
}

// Allowed is what the cap allows at a moment.
func (c *Cap) Allowed(now time.Time) money.Nano {
	if now.Before(c.RaisedUntil) {
		return max(c.Amount, c.Raised)
	}
	return c.Amount
}

// enforced is the cap of its budgets: one that only alerts holds nothing back.
func (c *Cap) enforced() money.Nano {
	if c.AlertOnly {
		return MaxCap
	}
	return c.Amount
}

// CapUsage is a cap with its running period.
type CapUsage struct {
	Cap
	Span        period.Span
	Settled     money.Nano // charged for good in this period
	Outstanding money.Nano // with gateways: held, on its way to the ledger, or ready for the next requests
}

func capOf(r q.Cap) Cap {
	c := Cap{ID: r.ID, Scope: Scope(r.Scope), ScopeID: r.ScopeID, Period: period.Kind(r.Period), Amount: money.Nano(r.CapNano),
		AlertOnly: !r.Hard, Raised: money.Nano(r.RaisedNano)}
	if r.RaisedUntil != nil {
		c.RaisedUntil = *r.RaisedUntil
	}
	return c
}

// SetCap sets or changes the cap of a scope and period. A new cap counts what the running period has cost so far; a raise
// that is under way ends. Every gateway obeys it within a second.
func (d *Desk) SetCap(ctx context.Context, by tenants.Actor, org ids.ID, c Cap) (Cap, error) {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return Cap{}, err
	}
	switch {
	case c.Amount < 0 || c.Amount > MaxCap:
		return Cap{}, fault.New(fault.Invalid, "A cap lies between 0 and %s USD.", MaxCap).WithParam("amount")
	case !c.Period.Valid():
		return Cap{}, fault.New(fault.Invalid, "A cap is for a day, week, month, or total.").WithParam("period")
	}
	var set Cap
	err := d.change(ctx, org, func(tx pgx.Tx) error {
		queries := q.New(tx)
		spans, err := d.runningSpans(ctx, queries, org)
		if err != nil {
			return err
		}
		found, err := queries.ScopeExists(ctx, q.ScopeExistsParams{Scope: string(c.Scope), OrgID: org, ScopeID: c.ScopeID})
		if err != nil {
			return fmt.Errorf("credit: find a cap's scope: %w", err)
		}
		if !found {
			return fault.New(fault.NotFound, "There is no such key, project or organization.").WithCode("not_found").WithParam("scope")
		}
		var before any // nothing
		row, err := queries.FindCapForChange(ctx, q.FindCapForChangeParams{OrgID: org, Scope: string(c.Scope), ScopeID: c.ScopeID, Period: string(c.Period)})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			set, err = startCap(ctx, queries, org, c, spans[c.Period].Start)
		case err == nil:
			before = capOf(row)
			c.ID, c.Raised, c.RaisedUntil = row.ID, 0, time.Time{}
			set, err = changeCap(ctx, queries, org, c, spans[c.Period].Start)
		}
		if err != nil {
			return err
		}
		if err := noteAlerts(ctx, queries, org, set, spans[c.Period].Start); err != nil {
			return err
		}
		return d.audit(ctx, tx, by, org, "cap.set", ids.Format(capPrefix, set.ID), before, set)
	})
	return set, err
}

const capPrefix = "cap"

// startCap makes a cap and its budget of the running period, with what the period has cost so far.
func startCap(ctx context.Context, queries *q.Queries, org ids.ID, c Cap, start time.Time) (Cap, error) {
	row, err := queries.InsertCap(ctx, q.InsertCapParams{OrgID: org, ID: ids.New(), Scope: string(c.Scope), ScopeID: c.ScopeID,
		Period: string(c.Period), CapNano: int64(c.Amount), Hard: !c.AlertOnly})
	if errors.Is(err, pgx.ErrNoRows) {
		return Cap{}, fault.New(fault.Conflict, "Somebody else just set this cap. Look again.").WithCode("cap_changed")
	}
	if err != nil {
		return Cap{}, fmt.Errorf("credit: insert a cap: %w", err)
	}
	spent, err := queries.SpentSince(ctx, q.SpentSinceParams{OrgID: org, Since: start, Scope: row.Scope, ScopeID: row.ScopeID})
	if err != nil {
		return Cap{}, fmt.Errorf("credit: what a cap's period has cost: %w", err)
	}
	err = queries.StartCapBudget(ctx, q.StartCapBudgetParams{OrgID: org, ID: ids.New(), Scope: row.Scope, ScopeID: row.ScopeID,
		Period: row.Period, PeriodStart: start, CapNano: int64(c.enforced()), SettledNano: spent})
	if err != nil {
		return Cap{}, fmt.Errorf("credit: start a cap's budget: %w", err)
	}
	return capOf(row), nil
}

func changeCap(ctx context.Context, queries *q.Queries, org ids.ID, c Cap, start time.Time) (Cap, error) {
	var until *time.Time
	if c.Raised > 0 {
		until = &c.RaisedUntil
	}
	row, err := queries.ChangeCap(ctx, q.ChangeCapParams{OrgID: org, ID: c.ID, CapNano: int64(c.Amount), Hard: !c.AlertOnly,
		RaisedNano: int64(c.Raised), RaisedUntil: until})
	if err != nil {
		return Cap{}, fmt.Errorf("credit: change a cap: %w", err)
	}
	_, err = queries.SetBudgetCaps(ctx, q.SetBudgetCapsParams{CapNano: int64(c.enforced()), RaisedNano: row.RaisedNano, RaisedUntil: until,
		OrgID: org, Scope: row.Scope, ScopeID: row.ScopeID, Period: row.Period, Since: start})
	if err != nil {
		return Cap{}, fmt.Errorf("credit: change a cap's budgets: %w", err)
	}
	return capOf(row), nil
}

// noteAlerts notes which thresholds a cap's running period is past already.
func noteAlerts(ctx context.Context, queries *q.Queries, org ids.ID, c Cap, start time.Time) error {
	var budgets q.NoteAlertsParams
	if err := addBudgets(ctx, queries, &budgets, org, c, start); err != nil {
		return err
	}
	if err := queries.NoteAlerts(ctx, budgets); err != nil {
		return fmt.Errorf("credit: note alerts: %w", err)
	}
	return nil
}

// addBudgets adds a cap's budgets from a period's start on.
func addBudgets(ctx context.Context, queries *q.Queries, to *q.NoteAlertsParams, org ids.ID, c Cap, start time.Time) error {
	list, err := queries.BudgetsOfCap(ctx, q.BudgetsOfCapParams{OrgID: org, Scope: string(c.Scope), ScopeID: c.ScopeID, Period: string(c.Period), Since: start})
	if err != nil {
		return fmt.Errorf("credit: a cap's budgets: %w", err)
	}
	for _, id := range list {
		to.Orgs, to.Ids = append(to.Orgs, org), append(to.Ids, id)
	}
	return nil
}

// RemoveCap ends a cap.
func (d *Desk) RemoveCap(ctx context.Context, by tenants.Actor, org, id ids.ID) error {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return err
	}
	return d.change(ctx, org, func(tx pgx.Tx) error {
		queries := q.New(tx)
		spans, err := d.runningSpans(ctx, queries, org)
		if err != nil {
			return err
		}
		row, err := queries.RemoveCap(ctx, q.RemoveCapParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "cap")
		}
		// Running requests go on: it holds nothing back.
		_, err = queries.SetBudgetCaps(ctx, q.SetBudgetCapsParams{CapNano: int64(MaxCap), OrgID: org, Scope: row.Scope, ScopeID: row.ScopeID, Period: row.Period,
			Since: spans[period.Kind(row.Period)].Start})
		if err != nil {
			return fmt.Errorf("credit: free a cap's budgets: %w", err)
		}
		return d.audit(ctx, tx, by, org, "cap.remove", ids.Format(capPrefix, id), capOf(row), nil)
	})
}

// Caps lists an organization's caps with what their running periods have cost.
func (d *Desk) Caps(ctx context.Context, by tenants.Actor, org ids.ID) ([]CapUsage, error) {
	if err := by.Require(tenants.UsageRead, org); err != nil {
		return nil, err
	}
	var list []CapUsage
	err := d.db.InTx(ctx, db.Org(org).Snapshot().ReadOnly(), func(tx pgx.Tx) error {
		queries := q.New(tx)
		spans, err := d.runningSpans(ctx, queries, org)
		if err != nil {
			return err
		}
		var starts []time.Time
		for _, span := range spans {
			starts = append(starts, span.Start)
		}
		rows, err := queries.CapUsage(ctx, q.CapUsageParams{OrgID: org, Starts: starts})
		if err != nil {
			return fmt.Errorf("credit: caps: %w", err)
		}
		list = usages(rows, spans)
		return nil
	})
	return list, err
}

// usages gives one line per cap. A cap may come with budgets that began at the start of another kind of period: the first
// of a month is a day, too.
func usages(rows []q.CapUsageRow, spans map[period.Kind]period.Span) []CapUsage {
	var list []CapUsage
	for _, r := range rows {
		if n := len(list); n == 0 || list[n-1].ID != r.ID {
			list = append(list, CapUsage{Cap: Cap{ID: r.ID, Scope: Scope(r.Scope), ScopeID: r.ScopeID, Period: period.Kind(r.Period),
				Amount: money.Nano(r.CapNano), AlertOnly: !r.Hard}, Span: spans[period.Kind(r.Period)]})
			if c := &list[len(list)-1]; r.RaisedUntil != nil {
				c.Raised, c.RaisedUntil = money.Nano(r.RaisedNano), *r.RaisedUntil
			}
		}
		if c := &list[len(list)-1]; r.PeriodStart != nil && r.PeriodStart.Equal(c.Span.Start) {
			c.Settled, c.Outstanding = money.Nano(*r.SettledNano), money.Nano(*r.OutstandingNano)
		}
	}
	return list
}

// runningSpans are the periods that now is in, in the organization's zone.
func (d *Desk) runningSpans(ctx context.Context, queries *q.Queries, org ids.ID) (map[period.Kind]period.Span, error) {
	name, err := queries.OrgTimeZone(ctx, org)
	if err != nil {
		return nil, tenants.Found(err, "organization")
	}
	zone, err := period.Zone(name)
	if err != nil {
		return nil, err
	}
	now := d.now()
	spans := make(map[period.Kind]period.Span)
	for _, k := range []period.Kind{period.Total, period.Day, period.Week, period.Month} {
		spans[k] = period.At(k, zone, now)
	}
	return spans, nil
}
