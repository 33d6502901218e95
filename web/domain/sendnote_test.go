package domain_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/ids"
)

// A credit note that the payment provider refuses is sent by hand on its page, once; the customer sees that, and not why.
func TestACreditNoteIsSentByHandOnItsPage(t *testing.T) {
	s := newShop(t)
	id, note := s.invoice("INV-7", time.Date(2026, time.October, 1, 0, 0, 0, 0, time.UTC)), ids.New()
	s.exec(`INSERT INTO invoice_pushes (org_id, invoice_id, state, problem, updated_at) VALUES ($1, $2, 'asked', 'the payment provider does not send back $4.00', $3)`, s.acme.ID, id, now)
	s.exec(`INSERT INTO credit_notes (org_id, id, invoice_id, number, cents, relieved_cents, back, reason, idempotency_key, txn_id, created_by, created_at, till_problem, till_again_at)
		VALUES ($1, $2, $3, 'CN-7', 400, 0, 'stripe', 'late answers', 'k', $2, 'ann', $4, 'This payment is disputed.', $4::timestamptz + interval '1 day')`, s.acme.ID, note, id, now)
	mine, theirs := "/billing/invoices/"+ids.Format(ids.Invoice, id), "/admin/customers/"+ids.Format(ids.Org, s.acme.ID)+"/invoices/"+ids.Format(ids.Invoice, id)
	link := theirs + "/credit-notes/" + ids.Format(ids.Note, note) + "/sent-by-hand"
	if _, body, _ := s.page(s.staff, theirs, nil); !strings.Contains(body, `href="`+link+`"`) {
		t.Error("the page leads nowhere")
	}
	if status, body, _ := s.page(s.staff, link, nil); status != http.StatusOK || !strings.Contains(body, "$4.00 of CN-7") || !strings.Contains(body, "This payment is disputed.") {
		t.Errorf("the form answers %d", status)
	}
	if status, _, _ := s.page(s.staff, link, deed("reason", " ")); status != http.StatusUnprocessableEntity {
		t.Errorf("without a reason: %d", status)
	}
	form := deed("reason", "Transfer 4712")
	for range 2 { // the same form again does nothing more
		if status, _, to := s.page(s.staff, link, form); status != http.StatusSeeOther || !strings.HasSuffix(to, "?done=sent") {
			t.Errorf("sent: %d, %s", status, to)
		}
	}
	if status, _, _ := s.page(s.staff, link, nil); status != http.StatusConflict {
		t.Errorf("the form again: %d", status)
	}
	if _, body, _ := s.page(s.staff, theirs, nil); !strings.Contains(body, "sent by hand on 30 Nov 2026") || !strings.Contains(body, "Transfer 4712") || strings.Contains(body, `href="`+link+`"`) {
		t.Error("the operator does not see that it was sent, or why, or can do it again")
	}
	if _, body, _ := s.page(s.owner, mine, nil); !strings.Contains(body, "sent by hand on 30 Nov 2026") || strings.Contains(body, "Transfer 4712") {
		t.Error("the customer does not see that it was sent, or sees why")
	}
	if n := s.count(`SELECT -amount_nano FROM ledger_balances WHERE org_id = $1 AND account = 'stripe_clearing'`, s.acme.ID); n != -4_000_000_000 {
		t.Errorf("the books say %d", n)
	}
}
