package invoice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// How the comparison with the payment provider's list is made.
const (
	compareBack    = 100 * 24 * time.Hour // longer than an invoice stays open in the ordinary way
	compareGrace   = 5 * time.Minute      // what is younger may be on its way
	compareLimit   = 10 * time.Minute
	maxDifferences = 200
)

// Difference is something that our invoices and the payment provider's do not agree about.
type Difference struct {
	Ref     string `json:"ref"`           // the payment provider's id; "" = it knows none
	Org     string `json:"org,omitempty"` // "" = the invoice is not known here
	Invoice string `json:"invoice"`
	What    string `json:"what"`
}

// Comparison is what a comparison found.
type Comparison struct {
	At          time.Time
	Invoices    int64 // looked at
	Differences []Difference
	Problem     string // why it could not be finished; "" = it was
}

// Compare reads the payment provider's own list of invoices: what its money did is booked, and what still differs then is
// listed.
func (c *Collector) Compare(ctx context.Context) (Comparison, error) {
	if !c.On() {
		return Comparison{}, errNoTill
	}
	ctx, cancel := context.WithTimeout(ctx, compareLimit)
	defer cancel()
	k := &comparison{c: c, Comparison: Comparison{At: c.s.now(), Differences: []Difference{}}, refs: map[ids.ID][]TillState{}}
	err := k.run(ctx)
	if err != nil {
		k.Problem = fault.Of(err).Message
	}
	list, jsonErr := json.Marshal(k.Differences)
	if jsonErr != nil {
		return k.Comparison, jsonErr
	}
	saved := c.s.system(context.WithoutCancel(ctx), func(_ pgx.Tx, r *q.Queries) error {
		return r.InsertInvoiceCheck(ctx, q.InsertInvoiceCheckParams{ID: ids.New(), At: k.At, Invoices: k.Invoices, Differences: list, Problem: clip(k.Problem, maxProblem)})
	})
	return k.Comparison, errors.Join(err, saved)
}

type comparison struct {
	Comparison
	c    *Collector
	refs map[ids.ID][]TillState // what the payment provider listed, by our invoice
}

func (k *comparison) differ(ctx context.Context, ref string, org, id ids.ID, format string, args ...any) {
	if len(k.Differences) >= maxDifferences {
		return
	}
	d := Difference{Ref: ref, Invoice: ids.Format(ids.Invoice, id), What: fmt.Sprintf(format, args...)}
	if org != ids.Nil {
		d.Org = ids.Format(ids.Org, org)
	}
	k.Differences = append(k.Differences, d)
	slog.ErrorContext(ctx, "invoice: ours and the payment provider's differ", "invoice", d.Invoice, "org", d.Org, "ref", ref, "what", d.What)
}

func (k *comparison) run(ctx context.Context) error {
	since := k.At.Add(-compareBack)
	err := k.c.c.Till.Invoices(ctx, since, func(s TillState) error {
		k.Invoices++
		k.refs[s.Invoice] = append(k.refs[s.Invoice], s)
		return nil
	})
	if err != nil {
		return err
	}
	for id, list := range k.refs {
		if err := k.listed(ctx, id, list); err != nil {
			return err
		}
	}
	return k.unlisted(ctx, since)
}

// listed compares one of our invoices with what is listed for it.
func (k *comparison) listed(ctx context.Context, id ids.ID, list []TillState) error {
	push, inv, err := k.read(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		k.differ(ctx, list[0].Ref, ids.Nil, id, "the payment provider has an invoice that is not known here")
		return nil
	}
	if err != nil {
		return err
	}
	for _, s := range list {
		switch {
		case s.Ref == text(push.Ref) || s.Status == TillVoid || s.Status == TillDraft:
		case k.At.Sub(s.Created) >= compareGrace:
			k.differ(ctx, s.Ref, inv.OrgID, id, "the payment provider asks for %s twice: %s is %s, and ours is %s", *inv.Number, s.Ref, s.Status, text(push.Ref))
		}
		if s.Ref == text(push.Ref) {
			if err := k.one(ctx, push, inv, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// one books what a listed invoice's money did, and says what differs all the same.
func (k *comparison) one(ctx context.Context, push q.InvoicePush, inv q.Invoice, s TillState) error {
	what, err := k.differs(ctx, push, inv, s)
	if err != nil || what == "" {
		return err
	}
	err = k.c.Settle(ctx, push.OrgID, push.InvoiceID)
	if err != nil && !fault.Is(err, fault.Conflict) && !errors.Is(err, errMoved) {
		return err
	}
	if push, inv, err = k.read(ctx, inv.ID); err != nil {
		return err
	}
	if what, err = k.differs(ctx, push, inv, s); err != nil {
		return err
	}
	if what != "" && k.At.Sub(push.UpdatedAt) >= compareGrace {
		k.differ(ctx, s.Ref, inv.OrgID, inv.ID, "%s", what)
	}
	return nil
}

func (k *comparison) read(ctx context.Context, id ids.ID) (push q.InvoicePush, inv q.Invoice, err error) {
	err = k.c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		if push, err = r.PushOfInvoice(ctx, id); err == nil {
			inv, err = r.Invoice(ctx, q.InvoiceParams{OrgID: push.OrgID, ID: id})
		}
		return err
	})
	return push, inv, err
}

// differs is what does not agree, of the money or of the invoice; "" = everything does.
func (k *comparison) differs(ctx context.Context, push q.InvoicePush, inv q.Invoice, s TillState) (what string, err error) {
	if what := differs(push, inv, s); what != "" || s.Status == TillDraft {
		return what, nil
	}
	var notes []q.CreditNote
	err = k.c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		notes, err = r.CreditNotes(ctx, q.CreditNotesParams{OrgID: inv.OrgID, InvoiceID: inv.ID})
		return err
	})
	if err != nil {
		return "", named("credit notes", err)
	}
	switch there := targets(push, notes, s); {
	case there.ClawedCents != push.ClawedCents:
		what = fmt.Sprintf("%s were taken back there (refunds, disputes), and %s here", dollars(there.ClawedCents), dollars(push.ClawedCents))
	case !sameMoney(push, there):
		what = fmt.Sprintf("its fee is %s there and %s here", dollars(there.FeeCents), dollars(push.FeeCents))
	}
	return what, nil
}

// differs says what of an invoice does not agree; "" = everything does. Steps that are still to be taken are no difference.
func differs(push q.InvoicePush, inv q.Invoice, s TillState) string {
	switch {
	case s.Status == TillDraft:
		return ""
	case s.Total != inv.TotalCents || s.Currency != "usd":
		return fmt.Sprintf("it is %s %s there and %s here", dollars(s.Total), s.Currency, dollars(inv.TotalCents))
	case s.Paid != push.ReceivedCents:
		return fmt.Sprintf("%s were paid there, and %s are booked here", dollars(s.Paid), dollars(push.ReceivedCents))
	case s.Status == TillPaid && State(inv.State) == Open && push.ClawedCents == 0:
		return fmt.Sprintf("it is paid there, and %s are due here", dollars(unpaid(inv)))
	case s.Status == TillVoid && State(inv.State) == Open:
		return fmt.Sprintf("it is void there, and %s are due here", dollars(unpaid(inv)))
	case s.Status == TillOpen && State(inv.State) != Open:
		return fmt.Sprintf("it is open there, and %s here", inv.State)
	case s.Status == TillOpen && s.Due != unpaid(inv):
		return fmt.Sprintf("%s are due there, and %s here", dollars(s.Due), dollars(unpaid(inv)))
	}
	return ""
}

// unlisted finds invoices that the payment provider does not list.
func (k *comparison) unlisted(ctx context.Context, since time.Time) error {
	return k.c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		rows, err := r.PushesSince(ctx, since.Add(compareGrace))
		for _, p := range rows {
			if len(k.refs[p.InvoiceID]) == 0 && k.At.Sub(p.UpdatedAt) >= compareGrace {
				k.differ(ctx, text(p.Ref), p.OrgID, p.InvoiceID, "the payment provider lists no such invoice")
			}
		}
		return err
	})
}

// LastComparison is what the last comparison found; the zero Comparison when there was none. Operators only.
func (c *Collector) LastComparison(ctx context.Context, by tenants.Actor) (out Comparison, err error) {
	if err := by.RequireOperator(); err != nil {
		return out, err
	}
	err = c.s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		row, err := q.New(tx).LastInvoiceCheck(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		out = Comparison{At: row.At, Invoices: row.Invoices, Problem: row.Problem}
		return json.Unmarshal(row.Differences, &out.Differences)
	})
	return out, err
}
