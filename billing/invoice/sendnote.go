package invoice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// SendNoteByHand ends a credit note that the payment provider does not send back, because its payment was disputed or the
// refund failed at the bank: an operator sends the money, and nobody tries again. Operators only; above the desk's limit a second
// one must approve.
func (s *Service) SendNoteByHand(ctx context.Context, by tenants.Actor, org, id, note ids.ID, reason, key string) (Outcome, error) {
	if err := by.RequireOperator(); err != nil {
		return Outcome{}, err
	}
	i, err := s.Get(ctx, by, org, id)
	if err != nil {
		return Outcome{}, err
	}
	at := slices.IndexFunc(i.Notes, func(n Note) bool { return n.ID == note })
	if at < 0 {
		return Outcome{}, errNoNote
	}
	n := &i.Notes[at]
	return s.ask(ctx, by, credit.Ask{Org: org, Kind: credit.SendNoteRequest, Amount: nano(n.Cents - n.Relieved), Reason: reason, IdempotencyKey: key, Invoice: id, Note: note})
}

var errNoNote = fault.New(fault.NotFound, "There is no such credit note.").WithCode("not_found")

// sendDeed is how the desk books what is sent by hand.
type sendDeed struct{ s *Service }

// Check refuses what the payment provider sent back, or still may.
func (d sendDeed) Check(ctx context.Context, tx pgx.Tx, r credit.Request) error {
	list, err := q.New(tx).CreditNotes(ctx, q.CreditNotesParams{OrgID: r.Org, InvoiceID: r.Details.Invoice})
	if err != nil {
		return fmt.Errorf("invoice: credit notes: %w", err)
	}
	for i := range list {
		if list[i].ID == r.Details.Note {
			return d.check(ctx, q.New(tx), &list[i], r)
		}
	}
	return errNoNote
}

func (d sendDeed) check(ctx context.Context, queries *q.Queries, n *q.CreditNote, r credit.Request) error {
	push, err := queries.InvoicePush(ctx, q.InvoicePushParams{OrgID: n.OrgID, InvoiceID: n.InvoiceID})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("invoice: at the payment provider: %w", err)
	}
	return checkSend(n, push, r, d.s.now())
}

// sendMargin is how long before the next try nothing is sent by hand any more: the clock of who tries may be ahead of this one.
const sendMargin = time.Minute

// checkSend goes by the last answer and the last look: between a refusal and the next try nothing is under way there.
func checkSend(n *q.CreditNote, push q.InvoicePush, r credit.Request, now time.Time) error {
	switch {
	case len(r.Reason) > maxReason:
		return fault.New(fault.Invalid, "Give a reason of at most %d bytes.", maxReason).WithParam("reason")
	case Back(n.Back) != BackByStripe:
		return fault.New(fault.Conflict, "Nothing of this credit note goes back by the payment provider.").WithCode("not_by_provider")
	case n.SentAt != nil:
		return fault.New(fault.Conflict, "This credit note was sent by hand already.").WithCode("sent_by_hand")
	case n.TillRef != nil && -push.LooseCents < sends(n):
		return fault.New(fault.Conflict, "The payment provider sent it back.").WithCode("sent_there")
	case n.TillRef == nil && push.LooseCents > 0:
		return fault.New(fault.Conflict, "%s were refunded by hand at the payment provider. Refund the rest there, too.", dollars(push.LooseCents)).WithCode("refunded_there")
	case n.TillRef == nil && (n.TillProblem == "" || !pauses(n, now.Add(sendMargin))):
		return fault.New(fault.Conflict, "The payment provider is being asked to send it back. Wait until it refuses.").WithCode("being_sent")
	}
	return nil
}

// Do books it: the credit note took the money from the payment provider's, and it leaves the operator's bank.
func (d sendDeed) Do(ctx context.Context, tx pgx.Tx, by tenants.Actor, request credit.Request) error {
	s, r := d.s, q.New(tx)
	row, err := r.LockInvoice(ctx, q.LockInvoiceParams{OrgID: request.Org, ID: request.Details.Invoice})
	if err != nil {
		return tenants.Found(err, "invoice")
	}
	n, err := r.LockCreditNote(ctx, q.LockCreditNoteParams{OrgID: row.OrgID, InvoiceID: row.ID, ID: request.Details.Note})
	if err != nil {
		return tenants.Found(err, "credit note")
	}
	if err := d.check(ctx, r, &n, request); err != nil {
		return err
	}
	now := s.now()
	id := ids.At(now)
	err = s.post(ctx, tx, ledger.Txn{ID: id, Org: row.OrgID, Kind: ledger.Refund, Memo: n.Number + ", sent by hand", Key: "credit note sent:" + n.ID.String(),
		Entries: []ledger.Entry{ledger.Debit(ledger.StripeClearing, nano(sends(&n))), ledger.Credit(ledger.Cash, nano(sends(&n)))}})
	if err != nil {
		return err
	}
	who, reason, failed := by.Name(), strings.TrimSpace(request.Reason), int64(0)
	if err := r.SendCreditNote(ctx, q.SendCreditNoteParams{OrgID: n.OrgID, ID: n.ID, SentAt: &now, SentBy: &who, SentReason: &reason, SentTxnID: &id}); err != nil {
		return fmt.Errorf("invoice: end a credit note: %w", err)
	}
	if sentThere(&n) {
		failed = sends(&n)
	}
	if err := r.OvertakePush(ctx, q.OvertakePushParams{OrgID: row.OrgID, InvoiceID: row.ID, Found: failed, Now: now}); err != nil {
		return fmt.Errorf("invoice: wake the collector: %w", err)
	}
	return s.audit(ctx, tx, by, row.OrgID, "invoice.send_note", row.ID, nil, map[string]any{"number": *row.Number, "note": n.Number, "cents": sends(&n), "reason": reason})
}
