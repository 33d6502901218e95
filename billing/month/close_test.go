package month_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/billing/month"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

func (w *world) reasons(of time.Time) (codes []string) {
	w.t.Helper()
	list, err := w.CheckClose(w.t.Context(), w.root, of)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range list {
		codes = append(codes, r.Code)
	}
	return codes
}

func (w *world) refused(of time.Time, typed string, kind fault.Kind, code string) {
	w.t.Helper()
	_, err := w.Close(w.t.Context(), w.root, of, typed)
	if !fault.Is(err, kind) || fault.Of(err).Code != code {
		w.t.Errorf("closing %s as %q: %v, want the code %s", of.Format("2006-01"), typed, err, code)
	}
}

func TestAMonthSaysWhyItCannotBeClosed(t *testing.T) {
	w := newWorld(t)
	w.superuser("UPDATE invoicing SET first_month = $1", september)
	w.customer("a")
	w.exec("INSERT INTO quarantine (id, shard, incarnation, seq, position, reason, payload, created_at) VALUES ($1, 0, 'x', 1, 0, 'odd', '{}', $2)", ids.New(), october)
	w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, 'owes')", ids.New())
	w.exec(`INSERT INTO invoices (org_id, id, month, state, covered_from, covered_to, charged_nano, promo_nano, prepaid_nano, receivable_nano, overrun_nano, subtotal_cents, total_cents, drafted_at)
		SELECT org_id, $1, $2::date, 'draft', $2, $2, 1, 0, 0, 1, 0, 0, 0, $2 FROM orgs LIMIT 1`, ids.New(), september)

	if got := w.reasons(december); !slices.Equal(got, []string{month.EarlierOpen, month.NotFrozen}) {
		t.Errorf("December: %v", got)
	}
	all := []string{month.InvoicesToMake, month.InvoicesDraft, month.Quarantined, month.NotReconciled}
	if got := w.reasons(september); !slices.Equal(got, all) {
		t.Errorf("September: %v", got)
	}
	w.refused(september, "2026-09", fault.Conflict, month.InvoicesToMake)
	w.invoiced(september)
	w.exec("UPDATE invoices SET state = 'open', number = 'R-1', finalized_at = $1", now)
	w.exec("UPDATE quarantine SET resolved_at = $1, decision = 'dismissed', decided_by = 'system'", now)
	w.compared(october.Add(47*time.Hour), false) // not behind the freezing
	if got := w.reasons(september); !slices.Equal(got, []string{month.NotReconciled}) {
		t.Errorf("September: %v", got)
	}
	w.clock.Advance(time.Minute)
	w.compared(now, true)
	if got := w.reasons(september); !slices.Equal(got, []string{month.NotClean}) {
		t.Errorf("September: %v", got)
	}
	w.superuser("ALTER TABLE invoices DISABLE TRIGGER invoices_stay; UPDATE invoices SET finalized_at = '" + now.Add(90*time.Second).Format(time.RFC3339) + "'; ALTER TABLE invoices ENABLE TRIGGER invoices_stay")
	w.clock.Advance(30 * time.Second) // as the last invoice became final
	w.compared(now, false)
	if got := w.reasons(september); !slices.Equal(got, []string{month.NotReconciled}) {
		t.Errorf("September, with an invoice that no comparison has seen: %v", got)
	}
	w.clock.Advance(30 * time.Second)
	w.compared(now, false)
	if got := w.reasons(september); len(got) != 0 {
		t.Errorf("September: %v", got)
	}
	w.refused(september, "2026-10", fault.Invalid, "confirm_month")
	w.refused(september.AddDate(0, 0, 1), "2026-09", fault.NotFound, "not_found")
	w.refused(december.AddDate(0, 1, 0), "2027-01", fault.NotFound, "not_found")
	w.invoiced(october)
	w.refused(october, "2026-10", fault.Conflict, month.EarlierOpen)
	if _, err := w.Close(t.Context(), w.root, september, " 2026-09 "); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(t.Context(), w.root, october, "2026-10"); err != nil {
		t.Fatal(err)
	}
}

// Months begin with the first customer's: those before it are no months, and of those behind it each waits for all before it.
func TestMonthsAreClosedFromTheFirstOn(t *testing.T) {
	w := newWorld(t)
	w.customer("a") // on the first of September
	for _, start := range []time.Time{september, october, november} {
		w.invoiced(start)
	}
	w.compared(now, false)
	august := september.AddDate(0, -1, 0)
	for _, start := range []time.Time{august, august.AddDate(-26, 0, 0)} {
		w.refused(start, start.Format("2006-01"), fault.NotFound, "not_found")
		if _, err := w.CheckClose(t.Context(), w.root, start); !fault.Is(err, fault.NotFound) {
			t.Errorf("what keeps %s open: %v", start.Format("2006-01"), err)
		}
		if _, err := w.Report(t.Context(), w.root, start); !fault.Is(err, fault.NotFound) {
			t.Errorf("the report of %s: %v", start.Format("2006-01"), err)
		}
	}
	w.refused(november, "2026-11", fault.Conflict, month.EarlierOpen)
	w.refused(october, "2026-10", fault.Conflict, month.EarlierOpen)
	for _, start := range []time.Time{september, october, november} {
		if _, err := w.Close(t.Context(), w.root, start, start.Format("2006-01")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTransactionsOnTheirWayAreWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.customer("a")
	w.invoiced(september)
	w.clock.Advance(month.Freeze(september).Sub(now)) // backwards: to the freezing
	w.compared(w.clock.Now(), false)
	if r := w.report(september); r.State != month.Frozen {
		t.Errorf("September is %s", r.State)
	}
	w.refused(september, "2026-09", fault.Conflict, month.NotFrozen)
	w.clock.Advance(15 * time.Minute)
	if _, err := w.Close(t.Context(), w.root, september, "2026-09"); err != nil {
		t.Fatal(err)
	}
}

func TestClosingTwiceIsTheSame(t *testing.T) {
	w := newWorld(t)
	org, other := w.customer("a"), w.customer("b")
	w.post(org, september.Add(time.Hour), ledger.Grant, ledger.Debit(ledger.Cash, 1000), ledger.Credit(ledger.PrepaidPaid, 1000))
	w.use(org, september.Add(2*time.Hour), september, 1300, 7)
	w.use(other, september.Add(2*time.Hour), september, 11, 0)
	w.invoiced(september)
	w.compared(now, false)
	before := w.report(september)
	done := make(chan month.Report, 4)
	for range cap(done) {
		go func() {
			r, err := w.Close(t.Context(), w.root, september, "2026-09")
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
	}
	first := <-done
	for range cap(done) - 1 {
		if again := <-done; !reflect.DeepEqual(first, again) {
			t.Errorf("closed as %+v and as %+v", first, again)
		}
	}
	if first.State != month.Closed || first.ClosedBy != tenants.System().Name() || first.Checksum == "" || first.Total != before.Total || !reflect.DeepEqual(first.Rows, before.Rows) {
		t.Errorf("closed as %+v, it was %+v", first, before)
	}
	var closings int
	w.in(func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE action = 'month.close' AND target = '2026-09'").Scan(&closings)
	})
	if closings != 1 {
		t.Errorf("%d closings in the audit log", closings)
	}
	// What is closed stays, whatever becomes of the ledger behind it, and its closing is what the next month opens with.
	w.use(org, october.Add(time.Hour), october, 5, 0)
	if r := w.report(september); !reflect.DeepEqual(r, first) {
		t.Errorf("the closed month reads as %+v, it was %+v", r, first)
	}
	if r := w.report(october); r.Total[month.ReceivableOpening] != first.Total[month.ReceivableClosing] || r.Total[month.ReceivableClosing] != 316 {
		t.Errorf("October: %v", r.Total)
	}
}

func TestAReportThatWasChangedIsRefused(t *testing.T) {
	w := newWorld(t)
	w.use(w.customer("a"), september.Add(2*time.Hour), september, 1300, 7)
	w.invoiced(september)
	w.compared(now, false)
	if _, err := w.Close(t.Context(), w.root, september, "2026-09"); err != nil {
		t.Fatal(err)
	}
	w.superuser(`UPDATE accounting_months SET report = jsonb_set(report, '{rows,0,nano,0}', '1')`)
	_, err := w.Report(t.Context(), w.root, september)
	if !fault.Is(err, fault.Conflict) || fault.Of(err).Code != "report_changed" {
		t.Errorf("a changed report: %v", err)
	}
}

// What is booked into a closed month shows in the next one's opening, which is then not closed; nor is it when the two
// differences of two customers make up for each other.
func TestAMonthOpensWithWhatTheOneBeforeClosedWith(t *testing.T) {
	w := newWorld(t)
	org, other := w.customer("a"), w.customer("b")
	w.use(org, september.Add(2*time.Hour), september, 1300, 0)
	w.use(other, september.Add(2*time.Hour), september, 11, 0)
	w.invoiced(september)
	w.invoiced(october)
	w.compared(now, false)
	if _, err := w.Close(t.Context(), w.root, september, "2026-09"); err != nil {
		t.Fatal(err)
	}
	back := september.Add(24 * time.Hour)
	w.post(org, back, ledger.Adjustment, ledger.Debit(ledger.Receivable, 5), ledger.Credit(ledger.Adjustments, 5))
	w.refused(october, "2026-10", fault.Conflict, month.OpeningDiffers)
	w.post(other, back, ledger.Adjustment, ledger.Debit(ledger.Adjustments, 5), ledger.Credit(ledger.Receivable, 5))
	w.refused(october, "2026-10", fault.Conflict, month.OpeningDiffers)
	w.post(org, back, ledger.Adjustment, ledger.Debit(ledger.Adjustments, 5), ledger.Credit(ledger.Receivable, 5))
	w.post(other, back, ledger.Adjustment, ledger.Debit(ledger.Receivable, 5-11), ledger.Credit(ledger.Adjustments, 5-11))
	w.refused(october, "2026-10", fault.Conflict, month.OpeningDiffers) // b is at nothing: it is in no row
	w.post(other, back, ledger.Adjustment, ledger.Debit(ledger.Receivable, 11), ledger.Credit(ledger.Adjustments, 11))
	if _, err := w.Close(t.Context(), w.root, october, "2026-10"); err != nil {
		t.Fatal(err)
	}
}

func TestALossOfTheBooksIsNotClosed(t *testing.T) {
	var f month.Figures
	if f[month.Delivered] = money.Nano(1); f.Difference() == 0 {
		t.Error("revenue that nobody paid or owes is not noticed")
	}
}
