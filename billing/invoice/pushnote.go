package invoice

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
)

// sends is what a credit note sends back, in cents.
func sends(n *q.CreditNote) int64 { return n.Cents - n.RelievedCents }

// toSend reports that the payment provider is to send back what a credit note says. Other notes are not told there: they
// would take the room that those need.
func toSend(n *q.CreditNote) bool {
	return Back(n.Back) == BackByStripe && n.TillRef == nil && n.SentAt == nil && n.Cents > n.RelievedCents
}

// sentThere reports that the payment provider was found to have sent it back. Its refund may fail later on.
func sentThere(n *q.CreditNote) bool {
	return Back(n.Back) == BackByStripe && n.TillRef != nil && n.SentAt == nil
}

// sentBack is what credit notes sent back there, in cents.
func sentBack(notes []q.CreditNote) (cents int64) {
	for i := range notes {
		if n := &notes[i]; sentThere(n) {
			cents += sends(n)
		}
	}
	return cents
}

// notSent says what credit notes send back and the customer does not get; "" = he gets all.
func notSent(v view) (problem string) {
	for i := range v.notes {
		switch n := &v.notes[i]; {
		case !toSend(n):
		case n.TillProblem != "":
			return fmt.Sprintf("the payment provider does not send back %s of credit note %s: %s", dollars(sends(n)), n.Number, n.TillProblem)
		case n.TillAgainAt != nil:
			return fmt.Sprintf("the payment provider does not say what became of the %s of credit note %s: it is asked again", dollars(sends(n)), n.Number)
		}
	}
	if lost := sentBack(v.notes) - v.seen.Refunded; lost > 0 {
		return fmt.Sprintf("%s of its credit notes did not reach the customer, a refund failed at the bank: refund it there again, or send it by hand", dollars(lost))
	}
	return ""
}

// byOperator is instead of the payment provider's id: an operator refunded there what the credit note says. No two notes have a number.
func byOperator(n *q.CreditNote) string { return "refunded by hand: " + n.Number }

// unexplained is what was refunded there beyond what is booked as past credit notes and what they sent back, in cents. Less than
// 0: a refund of a credit note failed.
func unexplained(push q.InvoicePush, notes []q.CreditNote, seen TillState) int64 {
	return seen.Refunded - push.RefundedCents - sentBack(notes)
}

// pauses reports that a credit note was refused, or held, and that it is not yet time to ask for it again.
func pauses(n *q.CreditNote, now time.Time) bool {
	return n.TillAgainAt != nil && n.TillAgainAt.After(now)
}

// note sends back what a credit note says, once: it is looked for before it is made, and its key stays unless the answer was
// no. One that is refused does not keep others. after is kept with what became of it.
func (c *Collector) note(ctx context.Context, v view, after q.InvoicePush, n q.CreditNote) error {
	if found, err := c.findNotes(ctx, v, after); err != nil || found {
		return err
	}
	seen, err := c.c.Till.Invoice(ctx, v.seen.Ref) // behind the list: what is listed is in it
	switch left := unexplained(v.push, v.notes, seen); {
	case err != nil:
		return err
	case left > 0:
		return c.refundedByHand(ctx, v, after, n, left)
	case pauses(&n, c.s.now()): // a refund by hand brought it here, and failed meanwhile
		return c.keepNotes(ctx, v, after, func(*q.Queries) error { return nil })
	}
	x, err := c.c.Till.CreditNote(ctx, TillNote{Invoice: v.seen.Ref, Key: n.ID.String(), Cents: sends(&n), Paid: true, Refund: true, Memo: n.Number + ": " + n.Reason}, int(n.TillAttempt))
	switch {
	case err != nil:
		return c.refused(ctx, v, after, n, err)
	case x.Ref == "":
		return fault.New(fault.Unavailable, "The payment provider names no credit note.")
	}
	return c.link(ctx, v, after, n, x.Ref)
}

// findNotes links the credit notes that the payment provider has, though the answers to them were lost: until all of them are
// known, what they sent back looks like a refund by hand.
func (c *Collector) findNotes(ctx context.Context, v view, after q.InvoicePush) (found bool, err error) {
	list, err := c.c.Till.CreditNotes(ctx, v.seen.Ref)
	if err != nil {
		return false, err
	}
	there := make(map[string]string, len(list))
	for _, x := range list {
		there[x.Key] = x.Ref
	}
	var links []q.LinkCreditNoteParams
	for i := range v.notes {
		if n := &v.notes[i]; toSend(n) && there[n.ID.String()] != "" {
			ref := there[n.ID.String()]
			links = append(links, q.LinkCreditNoteParams{OrgID: n.OrgID, ID: n.ID, TillRef: &ref})
		}
	}
	if len(links) == 0 {
		return false, nil
	}
	return true, c.keepNotes(ctx, v, after, func(r *q.Queries) error {
		for _, l := range links {
			if err := r.LinkCreditNote(ctx, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// refundedByHand sends nothing: an operator refunded left cents there himself, and nobody pays twice. It is the credit note that says
// as much, or this one when it is covered. What covers it in part only waits for him to refund the rest there.
func (c *Collector) refundedByHand(ctx context.Context, v view, after q.InvoicePush, n q.CreditNote, left int64) error {
	for i := range v.notes {
		if x := &v.notes[i]; toSend(x) && sends(x) == left {
			return c.link(ctx, v, after, *x, byOperator(x))
		}
	}
	if left >= sends(&n) {
		return c.link(ctx, v, after, n, byOperator(&n))
	}
	at := c.s.now().Add(noteAgain)
	problem := fmt.Sprintf("%s were refunded there by hand. Refund the other %s of it there, too", dollars(left), dollars(sends(&n)-left))
	return c.keepNotes(ctx, v, after, func(r *q.Queries) error {
		return r.HoldCreditNote(ctx, q.HoldCreditNoteParams{OrgID: n.OrgID, ID: n.ID, TillProblem: problem, TillAgainAt: &at})
	})
}

func (c *Collector) link(ctx context.Context, v view, after q.InvoicePush, n q.CreditNote, ref string) error {
	return c.keepNotes(ctx, v, after, func(r *q.Queries) error {
		return r.LinkCreditNote(ctx, q.LinkCreditNoteParams{OrgID: n.OrgID, ID: n.ID, TillRef: &ref})
	})
}

// keepNotes stores what became of credit notes and what is known of the invoice, together: who looked before that would else
// book, by the notes of now, what he saw then.
func (c *Collector) keepNotes(ctx context.Context, v view, after q.InvoicePush, change func(r *q.Queries) error) error {
	return c.s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		if err := change(r); err != nil {
			return named("credit notes", err)
		}
		return c.keep(ctx, tx, v.push, after)
	})
}

// refused keeps why a credit note was not taken, and when it is tried again in other words. A failure that is only repeated says
// nothing of what was asked first: there is no answer yet (checkSend). Any other failure stays one.
func (c *Collector) refused(ctx context.Context, v view, after q.InvoicePush, n q.CreditNote, failure error) error {
	f := fault.Of(failure)
	problem, pause := clip(f.Message, maxProblem), noteAgain
	switch f.Code {
	case CodeRefused:
	case CodeReplayed:
		problem, pause = "", replayPause
	default:
		return failure
	}
	slog.WarnContext(ctx, "invoice: the payment provider does not take a credit note", "note", n.Number, "cause", failure)
	at := c.s.now().Add(pause)
	return c.keepNotes(ctx, v, after, func(r *q.Queries) error {
		return r.RefuseCreditNote(ctx, q.RefuseCreditNoteParams{OrgID: n.OrgID, ID: n.ID, TillProblem: problem, TillAgainAt: &at})
	})
}
