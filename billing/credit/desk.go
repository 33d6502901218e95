package credit

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/billing/period"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Notifier sends notices: *bus.Bus. Gateways that miss one find the change by themselves a few seconds later.
type Notifier interface {
	Publish(subject string, data []byte) error
}

// Desk gives credit, sets caps and tells what is left. Every method checks its Actor. It is safe for concurrent use.
type Desk struct {
	db     *db.DB
	clock  clock.Clock
	notify Notifier

	approveAbove money.Nano
	deeds        map[RequestKind]Deed
	asking       asking
}

// NewDesk makes the desk.
func NewDesk(d *db.DB, c clock.Clock, notify Notifier) *Desk {
	return &Desk{db: d, clock: c, notify: notify, approveAbove: StandardApproval}
}

func (d *Desk) now() time.Time { return d.clock.Now().UTC().Truncate(time.Microsecond) }

// change runs fn as the system and tells the gateways afterwards.
func (d *Desk) change(ctx context.Context, org ids.ID, fn func(tx pgx.Tx) error) error {
	if err := d.db.InTx(ctx, db.System(), fn); err != nil {
		return err
	}
	Tell(ctx, d.notify, org)
	return nil
}

// Tell makes every gateway look at an organization's caps and credit at once. Call it after the commit of whatever changed
// them.
func Tell(ctx context.Context, notify Notifier, org ids.ID) {
	if err := notify.Publish(bus.NoticeBudget, []byte(ids.Format(ids.Org, org))); err != nil {
		slog.WarnContext(ctx, "credit: gateways were not told of a change; they notice by themselves", "cause", err)
	}
}

func (d *Desk) audit(ctx context.Context, tx pgx.Tx, by tenants.Actor, org ids.ID, action, target string, before, after any) error {
	return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: action, Target: target, Before: before, After: after, At: d.now()})
}

// Balance is an organization's credit.
type Balance struct {
	Cap         money.Nano // everything ever granted, and the credit limit
	Settled     money.Nano // charged for good
	Outstanding money.Nano // with gateways: held by running requests, on its way to the ledger, or ready for the next ones
	Available   money.Nano // Cap - Settled - Outstanding; negative after a dispute or a lowered limit
	Paid, Promo money.Nano // credit not used yet, by the ledger; promotional credit is used first
	Receivable  money.Nano // used on the credit limit and not yet paid
}

// Balance tells an organization's credit. An organization that never had any has zeros.
func (d *Desk) Balance(ctx context.Context, by tenants.Actor, org ids.ID) (Balance, error) {
	if err := by.Require(tenants.UsageRead, org); err != nil {
		return Balance{}, err
	}
	var b Balance
	err := d.db.InTx(ctx, db.Org(org).Snapshot().ReadOnly(), func(tx pgx.Tx) error {
		row, err := q.New(tx).BalanceBudget(ctx, org)
		if err != nil && !fault.Is(tenants.Found(err, "balance"), fault.NotFound) {
			return fmt.Errorf("credit: balance: %w", err)
		}
		accounts, err := ledger.Balances(ctx, tx, org)
		if err != nil {
			return err
		}
		b = Balance{Cap: money.Nano(row.CapNano), Settled: money.Nano(row.SettledNano), Outstanding: money.Nano(row.OutstandingNano),
			Paid: -accounts[ledger.PrepaidPaid], Promo: -accounts[ledger.PrepaidPromo], Receivable: accounts[ledger.Receivable]}
		b.Available = b.Cap - b.Settled - b.Outstanding
		return nil
	})
	return b, err
}

// SetCreditLimit says at once how much an organization may use beyond its credit. Operators only; a raise above what one may
// do alone is what Ask is for.
func (d *Desk) SetCreditLimit(ctx context.Context, by tenants.Actor, org ids.ID, limit money.Nano) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	_, err := d.ask(ctx, by, Ask{Org: org, Kind: LimitRequest, Limit: limit, Reason: "Credit limit", IdempotencyKey: ids.New().String()}, false)
	return err
}

// setLimit moves an organization's credit limit, and what it may spend with it.
func (d *Desk) setLimit(ctx context.Context, tx pgx.Tx, by tenants.Actor, org ids.ID, limit money.Nano) error {
	was, err := q.New(tx).SetCreditLimit(ctx, q.SetCreditLimitParams{OrgID: org, CreditLimit: int64(limit)})
	if err != nil {
		return tenants.Found(err, "organization")
	}
	// A balance that has no row yet takes the limit when it gets one.
	if _, err := q.New(tx).RaiseBalanceCap(ctx, q.RaiseBalanceCapParams{OrgID: org, Delta: int64(limit) - was}); err != nil {
		return fmt.Errorf("credit: move the balance's cap: %w", err)
	}
	return d.audit(ctx, tx, by, org, "credit_limit.set", ids.Format(ids.Org, org), money.Nano(was), limit)
}

// RaiseBalance adds to what an organization may spend, in the caller's transaction of the system. Whatever posts to credit or
// receivable calls it with the opposite of what it posted there, and Tell after the commit.
func RaiseBalance(ctx context.Context, queries *q.Queries, org ids.ID, delta money.Nano) error {
	move := q.RaiseBalanceCapParams{OrgID: org, Delta: int64(delta)}
	n, err := queries.RaiseBalanceCap(ctx, move)
	if err == nil && n == 0 {
		if err = queries.EnsureBalanceBudget(ctx, q.EnsureBalanceBudgetParams{OrgID: org, ID: ids.New(), PeriodStart: period.TotalStart}); err == nil {
			n, err = queries.RaiseBalanceCap(ctx, move)
		}
	}
	if err == nil && n == 0 {
		return fault.New(fault.NotFound, "There is no such organization.").WithCode("not_found")
	}
	if err != nil {
		return fmt.Errorf("credit: raise the balance: %w", err)
	}
	return nil
}
