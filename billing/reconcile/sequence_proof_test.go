package reconcile_test

import (
	"context"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/export"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/period"
	"millrace/billing/reconcile"
	"millrace/db"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// everySumIsTheSame: the statement's lines = the requests = both exports = the model.
func (l *life) everySumIsTheSame() {
	from := period.At(period.Day, l.zone, l.began).Start
	to := time.Now().In(l.zone).Add(24 * time.Hour)
	lines := l.statement(from, to)
	middle := l.began.Add(time.Since(l.began) / 2).In(l.zone)
	l.statement(from, middle)
	l.statement(middle, to)
	var requests int64
	l.must(l.read("SELECT coalesce(sum(charged_nano), 0)::bigint FROM usage_events WHERE org_id = $1", []any{l.payer.Org}, &requests))
	sums := map[string]int64{"statement": lines, "requests": requests}
	for _, kind := range []export.Kind{export.Usage, export.Revenue} {
		m, err := l.exports.Write(l.ctx, operator, export.Query{Kind: kind, Org: l.payer.Org, From: from.UTC(), To: to.UTC()}, export.CSV, io.Discard)
		l.must(err)
		n, err := money.ParseUSD(m.Total.Sums["charged_usd"])
		l.must(err)
		sums[string(kind)+" export"] = int64(n)
	}
	for name, n := range sums {
		if n != l.charged {
			l.rt.Fatalf("charged by the %s: %d, want %d", name, n, l.charged)
		}
	}
}

// statement ties out, account by account; it gives what the customer paid for usage.
func (l *life) statement(from, to time.Time) (charged int64) {
	var s *ledger.AccountStatement
	l.must(l.db.InTx(l.ctx, db.Org(l.payer.Org).Snapshot().ReadOnly(), func(tx pgx.Tx) (err error) {
		s, err = ledger.Statement(l.ctx, tx, l.payer.Org, from, to)
		return err
	}))
	sums := map[ledger.Account]money.Nano{}
	for a, n := range s.Opening {
		sums[a] += n
	}
	for _, line := range s.Lines {
		for _, e := range line.Entries {
			sums[e.Account] += e.Amount
			if line.Kind == ledger.Usage && slices.Contains([]ledger.Account{ledger.PrepaidPaid, ledger.PrepaidPromo, ledger.Receivable}, e.Account) {
				charged += int64(e.Amount)
			}
		}
	}
	for a, n := range sums {
		if s.Closing[a] != n {
			l.rt.Fatalf("statement of %s to %s: %s closes with %s, its lines come to %s", from, to, a, s.Closing[a], n)
		}
		if to.After(time.Now()) && int64(n) != l.account[a] {
			l.rt.Fatalf("statement: %s closes with %s, want %s", a, n, money.Nano(l.account[a]))
		}
	}
	return charged
}

// everyMonthIsInvoiced twice, by two services: the same invoices. They ask for what usage left receivable, to the nano.
func (l *life) everyMonthIsInvoiced() {
	first, second := l.invoicing(), l.invoicing()
	l.draftMonths(first)
	drafts := l.invoicesOf(first)
	l.must(l.exec(l.ctx, "UPDATE invoices SET state = 'draft', problem = 'to be drawn anew' WHERE org_id = $1 AND state = 'ready'", l.payer.Org))
	l.draftMonths(second)
	if again := l.invoicesOf(second); !reflect.DeepEqual(drafts, again) {
		l.rt.Fatalf("drafted: %+v\ndrafted again: %+v", drafts, again)
	}
	var owed, total int64
	for _, i := range drafts {
		owed, total = owed+l.addsUp(i), total+i.Total
	}
	if owed != l.account[ledger.Receivable] {
		l.rt.Fatalf("invoices of %d, usage left %d receivable", owed, l.account[ledger.Receivable])
	}
	l.quantities(drafts)
	for _, s := range []*invoice.Service{first, second} {
		for _, i := range drafts {
			_, err := s.Finalize(l.ctx, operator, l.payer.Org, i.ID)
			l.must(err)
		}
		l.draftMonths(s)
	}
	l.account[ledger.Receivable] = total * nanoPerCent
	l.account[ledger.Rounding] = owed - total*nanoPerCent
	l.check("final invoices")
	l.staysAsItIs(first, second, drafts)
	l.payInvoices(first, second, drafts)
}

func (l *life) draftMonths(s *invoice.Service) {
	for m := ledger.MonthOf(l.began); !m.After(l.last); m = m.AddDate(0, 1, 0) {
		_, err := s.Draft(l.ctx, operator, m)
		l.must(err)
	}
}

// invoicesOf are the customer's, without what tells when they were made.
func (l *life) invoicesOf(s *invoice.Service) (list []invoice.Invoice) {
	short, err := s.List(l.ctx, operator, l.payer.Org, 0, ids.Nil)
	l.must(err)
	for _, i := range short {
		whole, err := s.Get(l.ctx, operator, l.payer.Org, i.ID)
		l.must(err)
		whole.DraftedAt, whole.Version = time.Time{}, 0
		list = append(list, whole)
	}
	return list
}

// addsUp gives what an invoice is about.
func (l *life) addsUp(i invoice.Invoice) int64 {
	var amount money.Nano
	var cents int64
	for _, line := range i.Lines {
		amount, cents = amount+line.Amount, cents+line.Cents
	}
	if i.State != invoice.Ready || amount != i.Receivable || cents != i.Subtotal || i.Total != i.Subtotal+i.Tax || i.Charged != i.Promo+i.Prepaid+i.Receivable {
		l.rt.Fatalf("lines of %s and %d cents: %+v", amount, cents, i)
	}
	return int64(i.Receivable)
}

// quantities of the lines are what was delivered and cost something, where one invoice is about all of it.
func (l *life) quantities(list []invoice.Invoice) {
	if len(list) != 1 || int64(list[0].Charged) != l.charged || int64(list[0].Overrun) != l.overrun {
		return
	}
	got := map[string]int64{}
	for _, line := range list[0].Lines {
		got[line.Class] += line.Quantity
	}
	for c, n := range l.tokens {
		if class := usage.Class(c); class != usage.Requests && got[class.String()] != n {
			l.rt.Fatalf("%d tokens of %s are invoiced, want %d", got[class.String()], class, n)
		}
	}
}

// staysAsItIs: final invoices are the drafts with a number, whoever makes them final and how often.
func (l *life) staysAsItIs(first, second *invoice.Service, drafts []invoice.Invoice) {
	final := l.invoicesOf(first)
	if again := l.invoicesOf(second); len(final) != len(drafts) || !reflect.DeepEqual(final, again) {
		l.rt.Fatalf("final: %+v\nagain: %+v", final, again)
	}
	for n, i := range final {
		d := drafts[n]
		if i.Number == "" || i.ID != d.ID || i.Receivable != d.Receivable || i.Total != d.Total || !reflect.DeepEqual(i.Lines, d.Lines) {
			l.rt.Fatalf("drafted: %+v\nfinal: %+v", d, i)
		}
	}
}

// payInvoices pays what is due, and tells of each payment twice.
func (l *life) payInvoices(first, second *invoice.Service, list []invoice.Invoice) {
	for _, i := range list {
		if i.Total == 0 {
			continue
		}
		for _, s := range []*invoice.Service{first, second} {
			_, err := s.RecordPayment(l.ctx, operator, l.payer.Org, i.ID, invoice.PaymentInput{Cents: i.Total, Reference: "SEPA 1", IdempotencyKey: "paid " + i.ID.String()})
			l.must(err)
		}
		l.account[ledger.Cash] += i.Total * nanoPerCent
		l.account[ledger.Receivable] -= i.Total * nanoPerCent
	}
}

// everythingIsSound proves the books of all customers, this one's among them.
func (l *life) everythingIsSound() {
	l.must(l.db.InTx(l.ctx, db.System().Snapshot(), func(tx pgx.Tx) error {
		r, err := ledger.Verify(l.ctx, tx)
		if err == nil && !r.Sound() {
			l.rt.Fatalf("the books are not sound: %+v", r)
		}
		return err
	}))
	ctx, cancel := context.WithTimeout(l.ctx, lookFor)
	defer cancel()
	r, err := reconcile.Run(ctx, reconcile.Config{DB: l.db, Bus: l.bus, Clock: l.far, Settle: time.Nanosecond})
	l.must(err)
	if !r.Rated || r.Unexplained {
		l.rt.Fatalf("reconcile: rated %t, %+v", r.Rated, slices.DeleteFunc(r.Lines, func(x reconcile.Line) bool { return x.Explained }))
	}
}
