package invoice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Reminders, in days since the money should have come: since an invoice is overdue, or its card was declined.
const (
	remindFirst  int32 = 0
	remindAgain  int32 = 3
	remindLast   int32 = 7
	limitAfter   int32 = 14 // nothing more is used on the credit limit
	suspendAfter int32 = 30
)

// dunningSteps are in their order.
var dunningSteps = []int32{remindFirst, remindAgain, remindLast, limitAfter, suspendAfter}

const dunningBatch = 100

// dunned is what a step did, so that it can be undone.
type dunned struct {
	Skipped     bool       `json:"skipped,omitempty"`  // a later reminder was due already
	WasNano     *int64     `json:"was_nano,omitempty"` // the credit limit before
	SetNano     *int64     `json:"set_nano,omitempty"` // ... and since
	SuspendedAt *time.Time `json:"suspended_at,omitempty"`
}

// Dun reminds whoever does not pay, each step once, and undoes what was done when the money is there. It needs no payment
// provider.
func (c *Collector) Dun(ctx context.Context) error {
	errs := []error{c.undoSettled(ctx)}
	now := c.s.now()
	for after := ids.Nil; ctx.Err() == nil; {
		var rows []q.DunnableInvoicesRow
		err := c.s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
			rows, err = q.New(tx).DunnableInvoices(ctx, q.DunnableInvoicesParams{Now: now, After: after, MaxRows: dunningBatch})
			return err
		})
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("invoice: who does not pay: %w", err))...)
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			after = r.ID
			if last := lastStep(r.Since, now); last > r.Done {
				errs = append(errs, c.dun(ctx, r.OrgID, r.ID))
			}
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// lastStep is the latest step that is due; -1 = none.
func lastStep(since, now time.Time) int32 {
	last := int32(-1)
	for _, s := range dunningSteps {
		if !now.Before(since.Add(time.Duration(s) * 24 * time.Hour)) {
			last = s
		}
	}
	return last
}

// dun takes every step of an invoice that is due, in one transaction.
func (c *Collector) dun(ctx context.Context, org, id ids.ID) error {
	changed := false
	err := c.s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		inv, push, done, err := c.lockDunning(ctx, r, org, id)
		if err != nil || State(inv.State) != Open {
			return err
		}
		since := *inv.DueAt
		if push.FailedAt != nil && push.FailedAt.Before(since) {
			since = *push.FailedAt
		}
		last := lastStep(since, c.s.now())
		for _, step := range dunningSteps {
			if step > last || done[step] {
				continue
			}
			if err := c.takeStep(ctx, tx, inv, push, step, last); err != nil {
				return err
			}
			changed = changed || step >= limitAfter
		}
		return nil
	})
	if err == nil && changed {
		c.notice(ctx, org)
	}
	return named("remind", err)
}

// lockDunning locks an invoice and reads what was done about it.
func (c *Collector) lockDunning(ctx context.Context, r *q.Queries, org, id ids.ID) (inv q.Invoice, push q.InvoicePush, done map[int32]bool, err error) {
	if inv, err = r.LockInvoice(ctx, q.LockInvoiceParams{OrgID: org, ID: id}); err != nil {
		return inv, push, nil, tenants.Found(err, "invoice")
	}
	if push, err = r.InvoicePush(ctx, q.InvoicePushParams{OrgID: org, InvoiceID: id}); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return inv, push, nil, err
	}
	steps, err := r.DunningSteps(ctx, q.DunningStepsParams{OrgID: org, InvoiceID: id})
	done = make(map[int32]bool, len(steps))
	for _, s := range steps {
		done[s.Step] = s.UndoneAt == nil
	}
	return inv, push, done, err
}

func (c *Collector) takeStep(ctx context.Context, tx pgx.Tx, inv q.Invoice, push q.InvoicePush, step, last int32) error {
	var d dunned
	var err error
	switch {
	case step == limitAfter:
		d, err = c.cutLimit(ctx, tx, inv)
	case step == suspendAfter:
		d, err = c.suspend(ctx, tx, inv)
	default:
		d.Skipped = step < min(last, remindLast)
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	n, err := q.New(tx).InsertDunningStep(ctx, q.InsertDunningStepParams{OrgID: inv.OrgID, InvoiceID: inv.ID, Step: step, Details: raw, DoneAt: c.s.now()})
	if err != nil || n == 0 || d.Skipped {
		return err
	}
	if err := c.mailStep(ctx, tx, inv, push, step); err != nil {
		return err
	}
	return audit.Append(ctx, tx, tenants.System(), audit.Change{Org: inv.OrgID, Action: "invoice.remind", Target: ids.Format(ids.Invoice, inv.ID),
		After: map[string]any{"number": *inv.Number, "day": step, "did": d}, At: c.s.now()})
}

// notice makes gateways and open pages look again, after the commit.
func (c *Collector) notice(ctx context.Context, org ids.ID) {
	c.tell(ctx, org)
	_ = c.s.c.Notify.Publish(bus.NoticeKey, []byte(ids.Format(ids.Org, org))) // gateways look by themselves soon enough
}

// DunningStep is one thing that was done because an invoice was not paid.
type DunningStep struct {
	Day    int // since the money should have come
	What   string
	At     time.Time
	Undone time.Time // zero = it is in force
}

// Dunning lists what was done because an invoice was not paid.
func (c *Collector) Dunning(ctx context.Context, by tenants.Actor, org, id ids.ID) (out []DunningStep, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return nil, err
	}
	err = c.s.c.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).DunningSteps(ctx, q.DunningStepsParams{OrgID: org, InvoiceID: id})
		for _, r := range rows {
			var d dunned
			if err := json.Unmarshal(r.Details, &d); err != nil {
				return err
			}
			if d.Skipped {
				continue
			}
			s := DunningStep{Day: int(r.Step), What: "reminded", At: r.DoneAt}
			switch r.Step {
			case limitAfter:
				s.What = "credit limit reduced to what is used"
			case suspendAfter:
				s.What = "suspended"
			}
			if r.UndoneAt != nil {
				s.Undone = *r.UndoneAt
			}
			out = append(out, s)
		}
		return err
	})
	return out, named("reminders", err)
}
