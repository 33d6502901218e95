package alert

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/hook"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Low is what an organization's credit must not fall below without people being told.
type Low struct {
	Below money.Nano // 0 = nobody is told
	Since time.Time  // when people were told that it is below; zero = it is not
}

// Low tells an organization's threshold.
func (t *Teller) Low(ctx context.Context, by tenants.Actor, org ids.ID) (out Low, err error) {
	if err := by.Require(tenants.UsageRead, org); err != nil {
		return out, err
	}
	err = t.db.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		out, err = lowOf(ctx, q.New(tx), org)
		return err
	})
	return out, err
}

func lowOf(ctx context.Context, r *q.Queries, org ids.ID) (out Low, err error) {
	row, err := r.BalanceAlert(ctx, org)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return out, nil
	case err != nil:
		return out, fmt.Errorf("alert: low credit: %w", err)
	}
	if out.Below = money.Nano(row.BelowNano); row.LowSince != nil {
		out.Since = *row.LowSince
	}
	return out, nil
}

// SetLow says below which credit people and webhooks are told; 0 = not any more. Whoever manages caps. An organization that is
// below it already is told at once.
func (t *Teller) SetLow(ctx context.Context, by tenants.Actor, org ids.ID, below money.Nano) error {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return err
	}
	if below < 0 || below > credit.MaxCap {
		return fault.New(fault.Invalid, "A threshold lies between 0 and %s USD.", credit.MaxCap).WithParam("below")
	}
	return t.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		r := q.New(tx)
		before, err := lowOf(ctx, r, org)
		if err != nil || before.Below == below {
			return err
		}
		if below == 0 {
			err = r.RemoveBalanceAlert(ctx, org)
		} else {
			err = r.SetBalanceAlert(ctx, q.SetBalanceAlertParams{OrgID: org, BelowNano: int64(below), UpdatedBy: by.Name(), UpdatedAt: t.now()})
		}
		if err != nil {
			return fmt.Errorf("alert: set low credit: %w", err)
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: "balance_alert.set", Target: ids.Format(ids.Org, org), Before: before.Below, After: below, At: t.now()})
	})
}

// tellLow tells once per crossing: marking and telling are one transaction.
func (t *Teller) tellLow(ctx context.Context, tx pgx.Tx) error {
	r, now := q.New(tx), t.now()
	if err := r.BalancesRecovered(ctx); err != nil {
		return err
	}
	rows, err := r.BalancesCrossed(ctx, q.BalancesCrossedParams{Now: now, MaxRows: perTurn})
	if err != nil {
		return err
	}
	for _, x := range rows {
		balance, below := money.Nano(x.BalanceNano), money.Nano(x.BelowNano)
		err := hook.Queue(ctx, tx, hook.Event{ID: ids.New(), Org: x.OrgID, Kind: KindLow, At: now, Data: map[string]any{"balance_usd": balance.String(), "below_usd": below.String()}})
		if err != nil {
			return err
		}
		to, err := r.AlertPeople(ctx, x.OrgID)
		if err != nil {
			return err
		}
		body := fmt.Sprintf("%s has %s left to spend, below the %s that you wanted to hear of. At nothing requests are refused with 402.\n\nAdd credit: %s/billing/credits\nChange the threshold: %s/limits\n",
			x.OrgName, usd(balance), usd(below), t.publicURL, t.publicURL)
		if err := t.mail(ctx, tx, to, "Credit is low: "+usd(balance)+" left", body); err != nil {
			return err
		}
	}
	return nil
}
