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

const dunningBatch = 100 // organizations

// dunned is what else is known of a step.
type dunned struct {
	Skipped bool `json:"skipped,omitempty"` // a later step was due already
}

// Dun reminds whoever does not pay, each step once, and undoes what was done when the money is there. It needs no payment
// provider. An organization that fails keeps none of the others.
func (c *Collector) Dun(ctx context.Context) error {
	var errs []error
	for after := ids.Nil; ctx.Err() == nil; {
		var orgs []ids.ID
		err := c.s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
			orgs, err = q.New(tx).DunnedOrgs(ctx, q.DunnedOrgsParams{Now: c.s.now(), After: after, MaxRows: dunningBatch})
			return err
		})
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("invoice: who does not pay: %w", err))...)
		}
		if len(orgs) == 0 {
			break
		}
		for _, org := range orgs {
			after = org
			errs = append(errs, named("remind", c.dun(ctx, org)))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// dun does what is due about an organization, in one transaction. Most turns find nothing and lock nothing.
func (c *Collector) dun(ctx context.Context, org ids.ID) error {
	var d *dunning
	err := c.s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		d, err = c.dunningOf(ctx, q.New(tx), org)
		return err
	})
	if err != nil || !d.due() {
		return err
	}
	err = c.s.system(ctx, func(tx pgx.Tx, r *q.Queries) (err error) {
		for _, lock := range []func(context.Context, ids.ID) error{r.LockApprovals, r.LockDunnedInvoices, r.LockDunnedOrg} { // in doc.go's order
			if err := lock(ctx, org); err != nil {
				return err
			}
		}
		if d, err = c.dunningOf(ctx, r, org); err != nil {
			return err
		}
		return c.act(ctx, tx, org, d)
	})
	if err == nil && d.moves() {
		c.notice(ctx, org)
	}
	return err
}

// dunningOf reads what there is, and plans.
func (c *Collector) dunningOf(ctx context.Context, r *q.Queries, org ids.ID) (*dunning, error) {
	rows, err := r.DunnedInvoices(ctx, org)
	if err != nil {
		return nil, err
	}
	d := &dunning{now: c.s.now()}
	for _, row := range rows {
		d.list = append(d.list, &dunnable{DunnedInvoicesRow: row})
	}
	if d.was, err = r.DunnedOrg(ctx, org); err != nil {
		return nil, tenants.Found(err, "organization")
	}
	d.plan()
	return d, nil
}

// takeStep notes a step, and writes to people when it is the latest that holds: what a worker that was away missed is no news.
func (c *Collector) takeStep(ctx context.Context, tx pgx.Tx, x *dunnable, step int32) error {
	latest := step == x.lastInForce()
	raw, err := json.Marshal(dunned{Skipped: !latest && step < limitAfter})
	if err != nil {
		return err
	}
	inv := x.Invoice
	err = q.New(tx).InsertDunningStep(ctx, q.InsertDunningStepParams{OrgID: inv.OrgID, InvoiceID: inv.ID, Step: step, Details: raw, DoneAt: c.s.now()})
	if err != nil || !latest && step < limitAfter {
		return err
	}
	if latest {
		if err := c.mailStep(ctx, tx, x, step); err != nil {
			return err
		}
	}
	return audit.Append(ctx, tx, tenants.System(), audit.Change{Org: inv.OrgID, Action: "invoice.remind", Target: ids.Format(ids.Invoice, inv.ID),
		After: map[string]any{"number": *inv.Number, "day": step}, At: c.s.now()})
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
