// Package alert tells people and webhooks what the money path noticed: thresholds of caps that were passed, credit that is about
// to end, and credit that fell below what the customer named.
//
// It owns the words and who gets them, and what is low (balance_alerts). It does not own the noticing of caps: cap_alerts are
// written by whoever moves a budget or a cap (billing/rate, billing/credit), in the same transaction.
//
// Invariants: an alert is told in the transaction that marks it as told (mail and deliveries are rows, too), so it is
// neither lost nor told twice; of several thresholds that one budget passed at once, people get one mail, about the highest,
// and webhooks every event; low credit is told once, until it has risen to the threshold again.
package alert

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/hook"
	"millrace/billing/ledger"
	"millrace/billing/period"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Kinds of webhook events.
const (
	KindCap    = "cap.alert"
	KindCredit = "credit.ending"
	KindLow    = "balance.low"
)

// Limits of one turn.
const (
	turnEvery = time.Second
	turnLimit = time.Minute
	perTurn   = 100
	maxListed = 100
)

// warnings are how many days before its end credit is warned about, the nearest first: who was warned a week before is not
// told about a month any more.
var warnings = []int32{7, 30}

// Teller tells.
type Teller struct {
	db        *db.DB
	clock     clock.Clock
	publicURL string
}

// New makes a teller. publicURL is where people reach the console, without a path.
func New(d *db.DB, c clock.Clock, publicURL string) *Teller {
	return &Teller{db: d, clock: c, publicURL: publicURL}
}

func (t *Teller) now() time.Time { return t.clock.Now().UTC().Truncate(time.Microsecond) }

// Run tells until ctx ends.
func (t *Teller) Run(ctx context.Context) error {
	tick := time.NewTicker(turnEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		n, err := t.Turn(ctx)
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "alert: alerts wait for the next turn", "cause", err)
		}
		if n == perTurn {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return ctx.Err()
}

// Turn tells what is not told yet, at most 100 alerts of caps, and gives how many.
func (t *Teller) Turn(ctx context.Context) (told int, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	err = t.db.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
		told, err = t.tellCaps(ctx, tx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("alert: caps: %w", err)
	}
	if err := t.db.InTx(ctx, db.System(), func(tx pgx.Tx) error { return t.tellLow(ctx, tx) }); err != nil {
		return told, fmt.Errorf("alert: low credit: %w", err)
	}
	for _, days := range warnings {
		if err := t.db.InTx(ctx, db.System(), func(tx pgx.Tx) error { return t.warn(ctx, tx, days) }); err != nil {
			return told, fmt.Errorf("alert: ending credit: %w", err)
		}
	}
	return told, nil
}

func (t *Teller) tellCaps(ctx context.Context, tx pgx.Tx) (int, error) {
	queries := q.New(tx)
	rows, err := queries.UntoldAlerts(ctx, perTurn)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	type amount struct { // a cap that changed alerts anew
		budget ids.ID
		cap    int64
	}
	highest := make(map[amount]int32)
	done := q.AlertsToldParams{ToldAt: t.now()}
	for _, r := range rows {
		of := amount{r.BudgetID, r.CapNano}
		highest[of] = max(highest[of], r.Percent)
		done.Orgs, done.Budgets, done.Caps, done.Percents = append(done.Orgs, r.OrgID), append(done.Budgets, r.BudgetID), append(done.Caps, r.CapNano), append(done.Percents, r.Percent)
	}
	for _, r := range rows {
		if err := hook.Queue(ctx, tx, capEvent(r)); err != nil {
			return 0, err
		}
		if highest[amount{r.BudgetID, r.CapNano}] != r.Percent {
			continue
		}
		to, err := queries.AlertPeople(ctx, r.OrgID)
		if err != nil {
			return 0, err
		}
		subject, body := capMail(r)
		if err := t.mail(ctx, tx, to, subject, body+"\n\n"+t.publicURL+"/limits\n"); err != nil {
			return 0, err
		}
	}
	return len(rows), queries.AlertsTold(ctx, done)
}

func (t *Teller) mail(ctx context.Context, tx pgx.Tx, to []string, subject, body string) error {
	for _, address := range to {
		if err := q.New(tx).InsertOutbox(ctx, q.InsertOutboxParams{ID: ids.New(), Recipient: address, Subject: subject, Body: body, CreatedAt: t.now()}); err != nil {
			return err
		}
	}
	return nil
}

// warn tells about credit that ends within some days, once per lot.
func (t *Teller) warn(ctx context.Context, tx pgx.Tx, days int32) error {
	queries, now := q.New(tx), t.now()
	until := now.AddDate(0, 0, int(days))
	rows, err := queries.LotsToWarn(ctx, q.LotsToWarnParams{Now: now, Until: until, Days: days, MaxRows: perTurn})
	if err != nil {
		return err
	}
	for _, r := range rows {
		n, err := queries.ClaimLotWarning(ctx, q.ClaimLotWarningParams{OrgID: r.OrgID, LotID: r.LotID, Days: days, ToldAt: now})
		if err != nil {
			return err
		}
		if n == 0 {
			continue // another process just told
		}
		amount, kind := money.Nano(r.RemainingNano), "paid"
		if ledger.Account(r.Account) == ledger.PrepaidPromo {
			kind = "promotional"
		}
		err = hook.Queue(ctx, tx, hook.Event{ID: ids.New(), Org: r.OrgID, Kind: KindCredit, At: now, Data: map[string]any{
			"lot_id": ids.Format(ids.Grant, r.LotID), "kind": kind, "remaining_usd": amount.String(), "expires_at": r.ExpiresAt, "days": days}})
		if err != nil {
			return err
		}
		to, err := queries.BillingPeople(ctx, r.OrgID)
		if err != nil {
			return err
		}
		body := fmt.Sprintf("%s of your %s credit is not used yet and ends on %s (UTC). What is left then is gone.\n\n%s/billing\n",
			usd(amount), kind, r.ExpiresAt.UTC().Format("2 January 2006 at 15:04"), t.publicURL)
		if err := t.mail(ctx, tx, to, usd(amount)+" of credit ends soon", body); err != nil {
			return err
		}
	}
	return nil
}

// Alert is a threshold that was passed.
type Alert struct {
	Scope       credit.Scope
	ScopeID     ids.ID
	Name        string // of the project or key; "" = the organization
	Period      period.Kind
	PeriodStart time.Time
	Percent     int
	Cap, Spent  money.Nano // when it was passed
	Hard        bool
	At          time.Time
	ToldAt      *time.Time
}

// Alerts lists the newest alerts of an organization.
func (t *Teller) Alerts(ctx context.Context, by tenants.Actor, org ids.ID) (list []Alert, err error) {
	if err := by.Require(tenants.UsageRead, org); err != nil {
		return nil, err
	}
	err = t.db.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).AlertsOfOrg(ctx, q.AlertsOfOrgParams{OrgID: org, MaxRows: maxListed})
		list = make([]Alert, len(rows))
		for i, r := range rows {
			list[i] = Alert{Scope: credit.Scope(r.Scope), ScopeID: r.ScopeID, Name: r.ScopeName, Period: period.Kind(r.Period), PeriodStart: r.PeriodStart,
				Percent: int(r.Percent), Cap: money.Nano(r.CapNano), Spent: money.Nano(r.SettledNano), Hard: r.Hard, At: r.CreatedAt, ToldAt: r.ToldAt}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("alert: list: %w", err)
	}
	return list, nil
}
