package invoice

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// act does what was planned. Approvals, the invoices and the organization are locked.
func (c *Collector) act(ctx context.Context, tx pgx.Tx, org ids.ID, d *dunning) error {
	for _, x := range d.list {
		for _, step := range x.take {
			if err := c.takeStep(ctx, tx, x, step); err != nil {
				return err
			}
		}
		if len(x.drop) == 0 {
			continue
		}
		if err := c.undo(ctx, tx, x); err != nil {
			return err
		}
	}
	if err := c.s.moveLimit(ctx, tx, org, d.was.CreditLimitNano, d.next.limit); err != nil {
		return err
	}
	if !sameTime(d.next.suspended, d.was.SuspendedAt) {
		if _, err := q.New(tx).SetOrgSuspended(ctx, q.SetOrgSuspendedParams{OrgID: org, SuspendedAt: d.next.suspended}); err != nil {
			return fmt.Errorf("invoice: suspend: %w", err)
		}
	}
	if err := c.keepHeld(ctx, q.New(tx), org, d); err != nil || !d.frees() {
		return err
	}
	i := slices.IndexFunc(d.list, func(x *dunnable) bool { return len(x.drop) > 0 })
	if i < 0 { // its money went back since: whoever reads "thank you" wonders
		return nil
	}
	return c.mailUndone(ctx, tx, d.list[i].Invoice)
}

// undo notes that steps do not hold any more.
func (c *Collector) undo(ctx context.Context, tx pgx.Tx, x *dunnable) error {
	inv := x.Invoice
	if err := q.New(tx).UndoDunningSteps(ctx, q.UndoDunningStepsParams{OrgID: inv.OrgID, InvoiceID: inv.ID, Steps: x.drop, Now: c.s.now()}); err != nil {
		return fmt.Errorf("invoice: undo reminders: %w", err)
	}
	return audit.Append(ctx, tx, tenants.System(), audit.Change{Org: inv.OrgID, Action: "invoice.remind_undone", Target: ids.Format(ids.Invoice, inv.ID),
		After: map[string]any{"number": *inv.Number, "days": x.drop}, At: c.s.now()})
}

func (c *Collector) keepHeld(ctx context.Context, r *q.Queries, org ids.ID, d *dunning) error {
	switch {
	case !d.keeps():
		return nil
	case d.next.goBack == nil && d.next.our == nil:
		return named("hold nothing", r.DropDunningHold(ctx, org))
	}
	p := q.KeepDunningHoldParams{OrgID: org, WasNano: d.next.goBack, LimitsSet: d.was.LimitsSetNow, SuspendedAt: d.next.our}
	if p.WasNano != nil {
		p.SetNano = &d.next.limit
	}
	return named("hold", r.KeepDunningHold(ctx, p))
}

// moveLimit moves an organization's credit limit, and what it may spend with it. The organization is locked.
func (s *Service) moveLimit(ctx context.Context, tx pgx.Tx, org ids.ID, from, to int64) error {
	if from == to {
		return nil
	}
	r := q.New(tx)
	if _, err := r.SetCreditLimit(ctx, q.SetCreditLimitParams{OrgID: org, CreditLimit: to}); err != nil {
		return fmt.Errorf("invoice: credit limit: %w", err)
	}
	if _, err := r.RaiseBalanceCap(ctx, q.RaiseBalanceCapParams{OrgID: org, Delta: to - from}); err != nil {
		return fmt.Errorf("invoice: move the balance's cap: %w", err)
	}
	return audit.Append(ctx, tx, tenants.System(), audit.Change{Org: org, Action: "credit_limit.set", Target: ids.Format(ids.Org, org),
		Before: money.Nano(from), After: money.Nano(to), At: s.now()})
}

// lowerLimit takes what was given up off the credit limit, and off the one to go back to: a loss frees no credit. The
// organization is locked.
func (s *Service) lowerLimit(ctx context.Context, tx pgx.Tx, org ids.ID, by money.Nano) error {
	r := q.New(tx)
	o, err := r.DunnedOrg(ctx, org)
	if err != nil {
		return tenants.Found(err, "organization")
	}
	to := max(o.CreditLimitNano-int64(by), 0)
	if o.WasNano != nil && !limitDecided(o) {
		back := max(*o.WasNano-int64(by), 0)
		err := r.KeepDunningHold(ctx, q.KeepDunningHoldParams{OrgID: org, WasNano: &back, SetNano: &to, LimitsSet: o.LimitsSet, SuspendedAt: o.HeldSuspendedAt})
		if err != nil {
			return fmt.Errorf("invoice: hold: %w", err)
		}
	}
	return s.moveLimit(ctx, tx, org, o.CreditLimitNano, to)
}
