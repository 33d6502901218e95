package invoice_test

import (
	"testing"
	"time"

	"millrace/billing/credit"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// billed is a customer with a final invoice of so many dollars.
func (w *world) billed(dollars int64) (*customer, *invoice.Invoice) {
	w.t.Helper()
	c := w.customer(money.Nano(dollars+100) * money.NanoPerUSD)
	c.paid(c.used(w.dollar(), w.month(1).Add(time.Hour), dollars))
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()
	i := c.invoice(w.month(1))
	if i == nil || i.State != invoice.Open || i.Due() != dollars*100 {
		w.t.Fatalf("%+v", i)
	}
	return c, i
}

func (c *customer) available() money.Nano {
	c.w.t.Helper()
	b, err := c.w.desk.Balance(c.w.t.Context(), operator, c.org)
	c.must(err)
	return b.Available
}

func payment(cents int64, key string) invoice.PaymentInput {
	return invoice.PaymentInput{Cents: cents, Reference: "SEPA " + key, IdempotencyKey: key}
}

// A payment by hand frees the credit limit, once; the rest stays due.
func TestAPaymentFreesTheLimitOnce(t *testing.T) {
	w := newWorld(t)
	c, i := w.billed(700)
	s, ctx := w.invoices, t.Context()
	before := c.available()
	for range 2 { // the second is a repetition
		paid, err := s.RecordPayment(ctx, operator, c.org, i.ID, payment(300_00, "one"))
		if err != nil || paid.Due() != 400_00 || paid.State != invoice.Open {
			t.Fatalf("%+v, %v", paid, err)
		}
	}
	if got := c.available() - before; got != 300*money.NanoPerUSD {
		t.Errorf("%s USD were freed", got)
	}
	if _, err := s.RecordPayment(ctx, operator, c.org, i.ID, payment(299_00, "one")); fault.Of(err).Code != "idempotency_key_reused" {
		t.Errorf("another sum by the same key: %v", err)
	}
	if _, err := s.RecordPayment(ctx, operator, c.org, i.ID, payment(400_01, "two")); fault.Of(err).Code != "more_than_due" {
		t.Errorf("more than is due: %v", err)
	}
	w.clock.Advance(time.Second)
	paid, err := s.RecordPayment(ctx, operator, c.org, i.ID, payment(400_00, "two"))
	if err != nil || paid.State != invoice.Paid || paid.Due() != 0 || paid.SettledAt.IsZero() {
		t.Fatalf("%+v, %v", paid, err)
	}
	if cash, due := c.account(ledger.Cash), c.account(ledger.Receivable); cash != 700*money.NanoPerUSD || due != 0 {
		t.Errorf("cash %s, receivable %s", cash, due)
	}
	if got := c.invoice(w.month(1)); len(got.Payments) != 2 || got.Payments[0].Reference != "SEPA one" {
		t.Errorf("payments: %+v", got.Payments)
	}
	if n := w.number("SELECT count(*) FROM audit_log WHERE org_id = $1 AND action = 'invoice.pay'", c.org); n != 2 {
		t.Errorf("%d entries in the audit log", n)
	}
	w.sound()
}

// A credit note takes off what is not paid first; the rest comes back as the operator says.
func TestACreditNoteTakesWhatIsNotPaidFirst(t *testing.T) {
	w := newWorld(t)
	c, i := w.billed(700)
	s, ctx := w.invoices, t.Context()
	if _, err := s.RecordPayment(ctx, operator, c.org, i.ID, payment(600_00, "one")); err != nil {
		t.Fatal(err)
	}
	before := c.available()
	note := invoice.NoteInput{Cents: 250_00, Reason: "The model was away.", IdempotencyKey: "n"}
	for range 2 {
		out, err := s.CreditNote(ctx, operator, c.org, i.ID, note)
		if err != nil || out.Request.State != credit.Done || out.Invoice.State != invoice.Paid || out.Invoice.Relieved != 100_00 || len(out.Invoice.Notes) != 1 {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if got := c.available() - before; got != 250*money.NanoPerUSD {
		t.Errorf("%s USD came free", got)
	}
	if due, has, back := c.account(ledger.Receivable), -c.account(ledger.PrepaidPaid), c.account(ledger.Refunds); due != 0 || has != 150*money.NanoPerUSD || back != 250*money.NanoPerUSD {
		t.Errorf("receivable %s, credit %s, refunds %s", due, has, back)
	}
	if _, err := s.CreditNote(ctx, operator, c.org, i.ID, invoice.NoteInput{Cents: 450_01, Reason: "r", IdempotencyKey: "m"}); fault.Of(err).Code != "more_than_invoiced" {
		t.Errorf("more than was invoiced: %v", err)
	}
	if _, err := s.CreditNote(ctx, operator, c.org, i.ID, invoice.NoteInput{Cents: 1, Reason: "r", Back: invoice.BackByStripe, IdempotencyKey: "m"}); fault.Of(err).Code != "not_paid_there" {
		t.Errorf("back from where nothing was paid: %v", err)
	}
	out, err := s.CreditNote(ctx, operator, c.org, i.ID, invoice.NoteInput{Cents: 450_00, Reason: "All of it.", Back: invoice.BackByHand, IdempotencyKey: "m"})
	if err != nil || out.Invoice.State != invoice.Void || c.account(ledger.Cash) != 150*money.NanoPerUSD {
		t.Errorf("all of it: %+v, %v; cash %s", out.Invoice, err, c.account(ledger.Cash))
	}
	w.sound()
}

// Above the desk's limit a second operator approves, and only then anything moves.
func TestASecondOperatorApprovesLargeNotes(t *testing.T) {
	w := newWorld(t)
	c, i := w.billed(3000)
	ctx := t.Context()
	operator, second := tenants.Actor{Operator: true, User: ids.New()}, tenants.Actor{Operator: true, User: ids.New()}
	out, err := w.invoices.CreditNote(ctx, operator, c.org, i.ID, invoice.NoteInput{Cents: 1500_00, Reason: "An outage.", IdempotencyKey: "n"})
	if err != nil || out.Request.State != credit.Waiting || out.Invoice.Credited != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	if _, err := w.desk.Approve(ctx, operator, out.Request.ID); fault.Of(err).Code != "second_operator_needed" {
		t.Errorf("approved by who asked: %v", err)
	}
	if _, err := w.desk.Approve(ctx, second, out.Request.ID); err != nil {
		t.Fatal(err)
	}
	if got := c.invoice(w.month(1)); got.Due() != 1500_00 || len(got.Notes) != 1 || got.Notes[0].Number == "" || got.Notes[0].Back != "" {
		t.Errorf("%+v", got)
	}
	off, err := w.invoices.WriteOff(ctx, operator, c.org, i.ID, "They are bankrupt.", "w")
	if err != nil || off.Request.State != credit.Waiting || off.Invoice.State != invoice.Open {
		t.Fatalf("%+v, %v", off, err)
	}
	if _, err := w.invoices.RecordPayment(ctx, operator, c.org, i.ID, payment(500_00, "one")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.desk.Approve(ctx, second, off.Request.ID); fault.Of(err).Code != "invoice_changed" {
		t.Errorf("approved though something was paid meanwhile: %v", err)
	}
	w.sound()
}

// What is given up is bad debt; money that comes all the same undoes it.
func TestAWriteOffIsUndoneByMoney(t *testing.T) {
	w := newWorld(t)
	c, i := w.billed(700)
	ctx := t.Context()
	for range 2 {
		out, err := w.invoices.WriteOff(ctx, operator, c.org, i.ID, "They are gone.", "w")
		if err != nil || out.Invoice.State != invoice.Uncollectible || out.Invoice.Due() != 0 || out.Invoice.GivenUp != 700_00 {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if bad, due := c.account(ledger.BadDebt), c.account(ledger.Receivable); bad != 700*money.NanoPerUSD || due != 0 {
		t.Errorf("bad debt %s, receivable %s", bad, due)
	}
	if _, err := w.invoices.WriteOff(ctx, operator, c.org, i.ID, "Again.", "v"); fault.Of(err).Code != "nothing_due" {
		t.Errorf("twice: %v", err)
	}
	paid, err := w.invoices.RecordPayment(ctx, operator, c.org, i.ID, payment(500_00, "late"))
	if err != nil || paid.State != invoice.Uncollectible || paid.GivenUp != 200_00 || c.account(ledger.BadDebt) != 200*money.NanoPerUSD {
		t.Errorf("%+v, %v", paid, err)
	}
	if paid, err = w.invoices.RecordPayment(ctx, operator, c.org, i.ID, payment(200_00, "rest")); err != nil || paid.State != invoice.Paid || c.account(ledger.BadDebt) != 0 {
		t.Errorf("%+v, %v", paid, err)
	}
	w.sound()
}

// Lists go page by page; the operator's tell of whom they are and what is overdue.
func TestListsOfInvoices(t *testing.T) {
	w := newWorld(t)
	v := w.dollar()
	c := w.customer(10_000 * money.NanoPerUSD)
	for n := 1; n <= 3; n++ {
		w.at(w.month(n).Add(72 * time.Hour))
		c.paid(c.used(v, w.clock.Now(), int64(n)))
		w.at(invoice.FreezeOf(w.month(n)).Add(time.Hour))
		w.turn()
	}
	ctx := t.Context()
	one, err := w.invoices.List(ctx, operator, c.org, 2, ids.Nil)
	if err != nil || len(one) != 2 || one[0].Total != 3_00 {
		t.Fatalf("%+v, %v", one, err)
	}
	rest, err := w.invoices.List(ctx, operator, c.org, 2, one[1].ID)
	if err != nil || len(rest) != 1 || rest[0].Total != 1_00 {
		t.Fatalf("%+v, %v", rest, err)
	}
	w.at(rest[0].DueAt.Add(time.Second))
	late, err := w.invoices.All(ctx, operator, invoice.Filter{Overdue: true})
	if err != nil || len(late) != 1 || late[0].OrgName != "Acme Rockets" || !late[0].Overdue(w.clock.Now()) || late[0].ID != rest[0].ID {
		t.Fatalf("%+v, %v", late, err)
	}
	if some, err := w.invoices.All(ctx, operator, invoice.Filter{Month: w.month(2), State: invoice.Open}); err != nil || len(some) != 1 || some[0].Total != 2_00 {
		t.Errorf("%+v, %v", some, err)
	}
	w.at(w.month(4).Add(100 * time.Hour))
	c.paid(c.used(v, w.clock.Now(), 42))
	so, err := w.invoices.SoFar(ctx, operator, c.org)
	if err != nil || so.Total != 42_00 || !so.Month.Equal(w.month(4)) || len(so.Lines) != 1 {
		t.Errorf("so far: %+v, %v", so, err)
	}
}
