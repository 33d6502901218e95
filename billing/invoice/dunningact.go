package invoice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// cutLimit leaves an organization as much credit limit as it owes, so that nothing more is used on it. Prepaid credit still
// works. What another invoice did already stays, with the limit that it found.
func (c *Collector) cutLimit(ctx context.Context, tx pgx.Tx, inv q.Invoice) (d dunned, err error) {
	r := q.New(tx)
	org, err := r.LockOrg(ctx, inv.OrgID)
	if err != nil {
		return d, tenants.Found(err, "organization")
	}
	accounts, err := ledger.Balances(ctx, tx, inv.OrgID)
	if err != nil {
		return d, err
	}
	was := org.CreditLimitNano
	set := min(was, max(int64(accounts[ledger.Receivable]), 0))
	other, err := c.other(ctx, r, inv, limitAfter)
	if err != nil {
		return d, err
	}
	if other.WasNano != nil {
		was = *other.WasNano
	}
	return dunned{WasNano: &was, SetNano: &set}, c.setLimit(ctx, r, inv.OrgID, set)
}

func (c *Collector) setLimit(ctx context.Context, r *q.Queries, org ids.ID, limit int64) error {
	was, err := r.SetCreditLimit(ctx, q.SetCreditLimitParams{OrgID: org, CreditLimit: limit})
	if err != nil {
		return fmt.Errorf("invoice: credit limit: %w", err)
	}
	if limit == was {
		return nil
	}
	if _, err := r.RaiseBalanceCap(ctx, q.RaiseBalanceCapParams{OrgID: org, Delta: limit - was}); err != nil {
		return fmt.Errorf("invoice: move the balance's cap: %w", err)
	}
	return nil
}

// suspend refuses the organization's requests, unless they are refused already.
func (c *Collector) suspend(ctx context.Context, tx pgx.Tx, inv q.Invoice) (d dunned, err error) {
	r := q.New(tx)
	org, err := r.LockOrg(ctx, inv.OrgID)
	if err != nil {
		return d, tenants.Found(err, "organization")
	}
	if org.SuspendedAt != nil {
		return c.other(ctx, r, inv, suspendAfter) // an operator's own suspension is not ours to end
	}
	now := c.s.now()
	_, err = r.SetOrgSuspended(ctx, q.SetOrgSuspendedParams{OrgID: inv.OrgID, SuspendedAt: &now})
	return dunned{SuspendedAt: &now}, err
}

// other is what the same step of another invoice of the organization did; nothing, when there is none in force.
func (c *Collector) other(ctx context.Context, r *q.Queries, inv q.Invoice, step int32) (d dunned, err error) {
	row, err := r.OtherDunning(ctx, q.OtherDunningParams{OrgID: inv.OrgID, Step: step, InvoiceID: inv.ID})
	if errors.Is(err, pgx.ErrNoRows) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("invoice: reminders: %w", err)
	}
	return d, json.Unmarshal(row.Details, &d)
}

// undoSettled undoes the steps of invoices on which nothing is owed any more.
func (c *Collector) undoSettled(ctx context.Context) error {
	var rows []q.SettledDunningRow
	err := c.s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		rows, err = q.New(tx).SettledDunning(ctx, dunningBatch)
		return err
	})
	errs := []error{named("settled reminders", err)}
	for _, r := range rows {
		errs = append(errs, c.undo(ctx, r.OrgID, r.InvoiceID))
	}
	return errors.Join(errs...)
}

// undo gives back what the steps of one invoice took, unless another invoice's step is in force, or an operator decided
// otherwise since.
func (c *Collector) undo(ctx context.Context, org, id ids.ID) error {
	changed := false
	err := c.s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		inv, err := r.LockInvoice(ctx, q.LockInvoiceParams{OrgID: org, ID: id})
		if err != nil || State(inv.State) != Paid && State(inv.State) != Void {
			return err
		}
		steps, err := r.DunningSteps(ctx, q.DunningStepsParams{OrgID: org, InvoiceID: id})
		if err != nil {
			return err
		}
		for _, s := range steps {
			if s.UndoneAt != nil || s.Step < limitAfter {
				continue
			}
			gave, err := c.giveBack(ctx, r, inv, s)
			if err != nil {
				return err
			}
			changed = changed || gave
		}
		if err := r.UndoDunningSteps(ctx, q.UndoDunningStepsParams{OrgID: org, InvoiceID: id, UndoneAt: new(c.s.now())}); err != nil {
			return err
		}
		if changed {
			if err := c.mailUndone(ctx, tx, inv); err != nil {
				return err
			}
		}
		return audit.Append(ctx, tx, tenants.System(), audit.Change{Org: org, Action: "invoice.remind_undone", Target: ids.Format(ids.Invoice, id), After: map[string]any{"number": *inv.Number}, At: c.s.now()})
	})
	if err == nil && changed {
		c.notice(ctx, org)
	}
	return named("undo reminders", err)
}

// giveBack undoes one step.
func (c *Collector) giveBack(ctx context.Context, r *q.Queries, inv q.Invoice, s q.InvoiceDunning) (gave bool, err error) {
	var did dunned
	if err := json.Unmarshal(s.Details, &did); err != nil {
		return false, err
	}
	other, err := c.other(ctx, r, inv, s.Step)
	if err != nil || other != (dunned{}) {
		return false, err
	}
	org, err := r.LockOrg(ctx, inv.OrgID)
	if err != nil {
		return false, tenants.Found(err, "organization")
	}
	switch {
	case did.WasNano != nil && did.SetNano != nil && org.CreditLimitNano == *did.SetNano && *did.WasNano != *did.SetNano:
		return true, c.setLimit(ctx, r, inv.OrgID, *did.WasNano)
	case did.SuspendedAt != nil && org.SuspendedAt != nil && org.SuspendedAt.Equal(*did.SuspendedAt):
		_, err = r.SetOrgSuspended(ctx, q.SetOrgSuspendedParams{OrgID: inv.OrgID})
		return true, err
	}
	return false, nil
}
