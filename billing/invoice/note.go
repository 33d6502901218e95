package invoice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Back says where a credit note's part goes that had been paid.
type Back string

// The ways.
const (
	BackAsCredit Back = "credit" // prepaid credit
	BackByHand   Back = "cash"   // the operator sends it past the payment provider
	BackByStripe Back = "stripe" // the payment provider gives it back
)

// NoteInput takes something off a final invoice: first of what was not paid.
type NoteInput struct {
	Cents          int64
	Reason         string // shown to the customer
	Back           Back   // "" = as credit
	IdempotencyKey string
}

// Note is a credit note.
type Note struct {
	ID       ids.ID
	Number   string
	Cents    int64
	Relieved int64 // of it, what had not been paid
	Back     Back  // "" = nothing had been paid of it
	Reason   string
	By       string
	At       time.Time
	Txn      ids.ID

	Refused string    // why the payment provider does not send it back, for operators; "" = it did, or was not asked yet
	SentAt  time.Time // when an operator sent it by hand, past the payment provider; zero = he did not
	SentWhy string    // for operators
}

// Outcome is what became of a credit note or write-off: above the limit it waits for a second operator
// (Request.State is credit.Waiting), and the invoice is as it was.
type Outcome struct {
	Invoice Invoice
	Request credit.Request
}

// CreditNote takes something off a final invoice; all of it makes it void. Operators only; above the desk's limit a second
// one must approve.
func (s *Service) CreditNote(ctx context.Context, by tenants.Actor, org, id ids.ID, in NoteInput) (Outcome, error) {
	if in.Back == "" {
		in.Back = BackAsCredit
	}
	return s.ask(ctx, by, credit.Ask{Org: org, Kind: credit.NoteRequest, Amount: nano(in.Cents), Reason: in.Reason, IdempotencyKey: in.IdempotencyKey,
		Invoice: id, Back: string(in.Back)})
}

// WriteOff gives up what is due. Operators only; above the desk's limit a second one must approve. Money that comes all the
// same is taken.
func (s *Service) WriteOff(ctx context.Context, by tenants.Actor, org, id ids.ID, reason, key string) (Outcome, error) {
	if err := by.RequireOperator(); err != nil {
		return Outcome{}, err
	}
	i, err := s.Get(ctx, by, org, id)
	if err != nil {
		return Outcome{}, err
	}
	return s.ask(ctx, by, credit.Ask{Org: org, Kind: credit.WriteOffRequest, Amount: nano(i.Due()), Reason: reason, IdempotencyKey: key, Invoice: id})
}

func (s *Service) ask(ctx context.Context, by tenants.Actor, a credit.Ask) (out Outcome, err error) {
	if out.Request, err = s.c.Desk.Ask(ctx, by, a); err != nil {
		return Outcome{}, err
	}
	out.Invoice, err = s.Get(ctx, by, a.Org, a.Invoice)
	return out, err
}

// noteDeed is how the desk makes credit notes.
type noteDeed struct{ s *Service }

// Check refuses what the invoice does not allow.
func (d noteDeed) Check(ctx context.Context, tx pgx.Tx, r credit.Request) error {
	row, err := q.New(tx).Invoice(ctx, q.InvoiceParams{OrgID: r.Org, ID: r.Details.Invoice})
	if err != nil {
		return tenants.Found(err, "invoice")
	}
	return checkNote(ctx, q.New(tx), row, r)
}

func checkNote(ctx context.Context, queries *q.Queries, row q.Invoice, r credit.Request) error {
	n := int64(r.Amount / NanoPerCent)
	most := row.TotalCents - row.CreditedCents - row.GivenUpCents
	switch back := Back(r.Details.Back); {
	case row.Number == nil:
		return fault.New(fault.Conflict, "This invoice is not final yet.").WithCode("invoice_not_final")
	case r.Amount%NanoPerCent != 0 || n <= 0:
		return fault.New(fault.Invalid, "A credit note is about whole cents, more than 0.").WithParam("amount")
	case n > most:
		return fault.New(fault.Conflict, "At most %s USD can still be credited.", nano(most)).WithCode("more_than_invoiced").WithParam("amount")
	case back != BackAsCredit && back != BackByHand && back != BackByStripe:
		return fault.New(fault.Invalid, "What was paid goes back as credit, cash or stripe.").WithParam("back")
	case len(r.Reason) > maxReason:
		return fault.New(fault.Invalid, "Give a reason of at most %d bytes.", maxReason).WithParam("reason")
	case back == BackByStripe:
		push, err := queries.InvoicePush(ctx, q.InvoicePushParams{OrgID: row.OrgID, InvoiceID: row.ID})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("invoice: at the payment provider: %w", err)
		}
		push.OrgID, push.InvoiceID = row.OrgID, row.ID
		there, _, err := atProvider(ctx, queries, push, push.ClawedCents)
		if err != nil {
			return err
		}
		if paid := n - unpaid(row); paid > there {
			return fault.New(fault.Conflict, "Only %s USD of it were paid by the payment provider.", nano(there)).WithCode("not_paid_there").WithParam("back")
		}
	}
	return nil
}

// unpaid is what is still due, in cents.
func unpaid(row q.Invoice) int64 {
	return row.TotalCents - row.PaidCents - row.RelievedCents - row.GivenUpCents
}

// Do books the note.
func (d noteDeed) Do(ctx context.Context, tx pgx.Tx, by tenants.Actor, request credit.Request) error {
	s, r := d.s, q.New(tx)
	row, err := r.LockInvoice(ctx, q.LockInvoiceParams{OrgID: request.Org, ID: request.Details.Invoice})
	if err != nil {
		return tenants.Found(err, "invoice")
	}
	if err := checkNote(ctx, r, row, request); err != nil {
		return err
	}
	n := int64(request.Amount / NanoPerCent)
	relieved := min(n, unpaid(row))
	paid, back := n-relieved, Back(request.Details.Back)
	account := map[Back]ledger.Account{BackAsCredit: ledger.PrepaidPaid, BackByHand: ledger.Cash, BackByStripe: ledger.StripeClearing}[back]
	if paid == 0 {
		back = ""
	}
	key := "credit note:" + request.ID.String()
	now := s.now()
	id := ids.At(now)
	err = s.post(ctx, tx, ledger.Txn{ID: id, Org: row.OrgID, Kind: ledger.Refund, Memo: *row.Number + ": " + request.Reason, Key: key,
		Entries: []ledger.Entry{ledger.Debit(ledger.Refunds, request.Amount), ledger.Credit(ledger.Receivable, nano(relieved)), ledger.Credit(account, nano(paid))}})
	if err != nil {
		return err
	}
	moved := row
	moved.CreditedCents += n
	moved.RelievedCents += relieved
	if _, err := s.move(ctx, tx, row, moved, 0); err != nil {
		return err
	}
	number, err := nextNumber(ctx, r, s.c.NotePrefix, now)
	if err != nil {
		return err
	}
	err = r.InsertCreditNote(ctx, q.InsertCreditNoteParams{OrgID: row.OrgID, ID: id, InvoiceID: row.ID, Number: number, Cents: n, RelievedCents: relieved, Back: string(back),
		Reason: request.Reason, IdempotencyKey: key, TxnID: id, CreatedBy: request.AskedBy, CreatedAt: now})
	if err != nil {
		return fmt.Errorf("invoice: keep a credit note: %w", err)
	}
	return s.audit(ctx, tx, by, row.OrgID, "invoice.credit", row.ID, nil,
		map[string]any{"number": *row.Number, "note": number, "cents": n, "unpaid_cents": relieved, "back": back, "reason": request.Reason})
}
