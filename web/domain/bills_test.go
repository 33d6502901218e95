package domain_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// invoice makes a final invoice of Acme over $12.34, and books what it is about.
func (s *shop) invoice(number string, month time.Time) ids.ID {
	s.t.Helper()
	const cents, nano = 1234, 12_340_000_000
	id := ids.New()
	s.exec(`INSERT INTO invoices (org_id, id, month, state, covered_from, covered_to, charged_nano, promo_nano, prepaid_nano, receivable_nano, overrun_nano, subtotal_cents, total_cents, drafted_at)
		VALUES ($1, $2, $3::date, 'ready', $3::date, $4, $5, 0, 0, $5, 0, $6, $6, $4)`, s.acme.ID, id, month, now, int64(nano), int64(cents))
	s.exec(`INSERT INTO invoice_lines (org_id, invoice_id, position, kind, usage_month, model_id, model, price_version_id, class, quantity, unit_pico, amount_nano, cents)
		VALUES ($1, $2, 1, 'usage', $3, $4, 'demo/large', $2, 'input', 6170000, 2000000, $5, $6)`, s.acme.ID, id, month, s.large.ID, int64(nano), int64(cents))
	s.exec(`UPDATE invoices SET state = 'open', number = $3, finalized_at = $4, due_at = $4::timestamptz + interval '14 days', bill_to = '{"legal_name": "Acme Robotics GmbH"}',
		seller = '{"name": "Millrace Operations Ltd"}' WHERE org_id = $1 AND id = $2`, s.acme.ID, id, number, now)
	s.must(s.db.InTx(s.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, _, err := ledger.Post(s.t.Context(), tx, ledger.Txn{Org: s.acme.ID, Kind: ledger.Usage, Entries: []ledger.Entry{
			ledger.Debit(ledger.Receivable, money.Nano(nano)), ledger.Credit(ledger.Revenue, money.Nano(nano))}})
		return err
	}))
	return id
}

func TestInvoicePages(t *testing.T) {
	s := newShop(t)
	october := time.Date(2026, time.October, 1, 0, 0, 0, 0, time.UTC)
	id, second := s.invoice("INV-7", october), s.invoice("INV-8", october.AddDate(0, -1, 0))
	mine, theirs := "/billing/invoices/"+ids.Format(ids.Invoice, id), "/admin/customers/"+ids.Format(ids.Org, s.acme.ID)+"/invoices/"+ids.Format(ids.Invoice, id)
	other := "/admin/customers/" + ids.Format(ids.Org, s.acme.ID) + "/invoices/" + ids.Format(ids.Invoice, second)
	see := func(who, path string, want int, shows ...string) string {
		t.Helper()
		status, body, _ := s.page(who, path, nil)
		if status != want {
			t.Errorf("%s answers %d, want %d", path, status, want)
		}
		for _, text := range shows {
			if !strings.Contains(body, text) {
				t.Errorf("%s does not show %q", path, text)
			}
		}
		return body
	}
	send := func(who, path string, want int, fields ...string) (body, location string) {
		t.Helper()
		form := url.Values{}
		for i := 0; i+1 < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		status, body, location := s.page(who, path, form)
		if status != want {
			t.Errorf("%s answers %d, want %d", path, status, want)
		}
		return body, location
	}
	see(s.owner, "/billing/invoices", http.StatusOK, "INV-7", "INV-8", "October 2026", "$12.34", "So far in November 2026")
	see(s.owner, "/billing/invoices?format=csv", http.StatusOK, "INV-7,October 2026,open,14 Dec 2026,12.34,12.34,PDF")
	see(s.owner, "/billing/invoices/so-far", http.StatusOK, "To be invoiced so far", "demo/large, output")
	see(s.owner, mine, http.StatusOK, "Invoice INV-7", "Acme Robotics GmbH", "6.17M", "$2.00", "due on 14 Dec 2026", "bank transfer")
	if body := see(s.owner, mine+"/pdf", http.StatusOK); !strings.HasPrefix(body, "%PDF") {
		t.Errorf("the document begins with %.20q", body)
	}
	see(s.viewing, mine, http.StatusForbidden)
	see(s.rival, mine, http.StatusNotFound)
	see(s.rival, mine+"/pdf", http.StatusNotFound)
	see(s.rival, theirs, http.StatusNotFound)
	see(s.staff, "/admin/invoices", http.StatusOK, "INV-7", "Acme Robotics", "open")
	see(s.staff, "/admin/invoices?show=paid", http.StatusOK, "No invoices here")
	see(s.staff, theirs, http.StatusOK, "Record a payment", "Acme Robotics")

	send(s.owner, "/billing/details", http.StatusUnprocessableEntity, "country", "Germany")
	send(s.owner, "/billing/details", http.StatusSeeOther, "legal_name", "Acme GmbH", "address", "Hafen 1\r\nHamburg", "country", "de", "tax_id", "DE1")
	see(s.owner, "/billing/details", http.StatusOK, "Acme GmbH", "Hafen 1\nHamburg", `value="DE"`)

	payment := []string{"id", ids.New().String(), "amount", "2.34", "reference", "T-1", "received_at", "2026-11-30"}
	send(s.staff, theirs+"/payment", http.StatusUnprocessableEntity, "id", ids.New().String(), "amount", "12.35", "reference", "T-1", "received_at", "2026-11-30")
	send(s.staff, theirs+"/payment", http.StatusSeeOther, payment...)
	send(s.staff, theirs+"/payment", http.StatusSeeOther, payment...) // the same form again pays once
	see(s.owner, mine, http.StatusOK, "T-1", "$10.00")
	_, to := send(s.staff, theirs+"/credit-note", http.StatusSeeOther, "id", ids.New().String(), "amount", "4", "reason", "late answers", "back", "credit")
	if !strings.HasSuffix(to, "?done=noted") {
		t.Errorf("after a credit note: %s", to)
	}
	see(s.owner, mine, http.StatusOK, "late answers", "$6.00")
	send(s.staff, theirs+"/write-off", http.StatusUnprocessableEntity, "id", ids.New().String(), "reason", " ")
	send(s.staff, theirs+"/write-off", http.StatusSeeOther, "id", ids.New().String(), "reason", "bankrupt")
	see(s.owner, mine, http.StatusOK, "given up")
	send(s.staff, other+"/credit-note", http.StatusSeeOther, "id", ids.New().String(), "amount", "12.34", "reason", "wrong customer", "back", "credit")
	see(s.staff, other, http.StatusOK, "void", "wrong customer")
	send(s.staff, other+"/finalize", http.StatusSeeOther) // it is final: nothing happens
}
