package control

import (
	"bytes"
	"net/http"
	"testing"

	"millrace/internal/ids"
)

// A payment by hand that never came is taken back, once; what it paid is due again.
func TestAPaymentByHandIsReversed(t *testing.T) {
	f := setup(t)
	org, _ := f.org("Acme")
	id := f.invoice(org.ID)
	payment, note := f.settled(org.ID, id)
	path := "/orgs/" + ids.Format(ids.Org, org.ID) + "/invoices/" + ids.Format(ids.Invoice, id)
	undo := path + "/payments/" + ids.Format(paymentPrefix, payment) + "/reversal"
	f.refused(f.send("PUT", undo, `{"reason":" "}`), http.StatusBadRequest, "invalid", "reason")
	var got Invoice
	f.want(f.send("PUT", undo, `{"reason":"It was recalled"}`), http.StatusOK, &got)
	if got.Due.Nano != 11_840_000_000 || got.Paid.Nano != 0 {
		t.Errorf("due %+v, paid %+v", got.Due, got.Paid)
	}
	f.refused(f.send("PUT", undo, `{"reason":"It was recalled"}`), http.StatusConflict, "reversed", "")
	f.refused(f.send("PUT", path+"/payments/"+ids.Format(paymentPrefix, ids.New())+"/reversal", `{"reason":"x"}`), http.StatusNotFound, "not_found", "")
	got = Invoice{}
	f.want(f.send("GET", path, ""), http.StatusOK, &got)
	if p := got.Payments[0]; p.ReversedAt == nil || p.ReversedWhy != "It was recalled" {
		t.Errorf("%+v", p)
	}
	if a := f.send("GET", path+"/credit-notes/"+ids.Format(ids.Note, note)+"/pdf", ""); a.status != http.StatusOK || !bytes.HasPrefix(a.body, []byte("%PDF-")) || a.header.Get("Content-Type") != "application/pdf" {
		t.Errorf("%d, %v, %.20q", a.status, a.header, a.body)
	}
	f.refused(f.send("GET", path+"/credit-notes/"+ids.Format(ids.Note, ids.New())+"/pdf", ""), http.StatusNotFound, "not_found", "")
}

// A credit note that the payment provider refuses is sent by hand, once.
func TestACreditNoteIsSentByHand(t *testing.T) {
	f := setup(t)
	org, _ := f.org("Acme")
	other, _ := f.org("Other")
	id := f.invoice(org.ID)
	_, credited := f.settled(org.ID, id)
	note := f.refusedNote(org.ID, id)
	of := func(org, note ids.ID) string {
		return "/orgs/" + ids.Format(ids.Org, org) + "/invoices/" + ids.Format(ids.Invoice, id) + "/credit-notes/" + ids.Format(ids.Note, note) + "/sent-by-hand"
	}
	body := `{"reason":"Transfer 4712"}`
	f.refused(f.send("POST", of(org.ID, note), body), http.StatusBadRequest, "invalid", headerIdempotencyKey)
	f.refused(f.send("POST", of(org.ID, note), `{"reason":" "}`, headerIdempotencyKey, "1"), http.StatusBadRequest, "invalid", "reason")
	f.refused(f.send("POST", of(org.ID, credited), body, headerIdempotencyKey, "2"), http.StatusConflict, "not_by_provider", "")
	f.refused(f.send("POST", of(org.ID, ids.New()), body, headerIdempotencyKey, "3"), http.StatusNotFound, "not_found", "")
	f.refused(f.send("POST", of(other.ID, note), body, headerIdempotencyKey, "4"), http.StatusNotFound, "not_found", "")
	for range 2 { // the same request again
		var got Approval
		f.want(f.send("POST", of(org.ID, note), body, headerIdempotencyKey, "5"), http.StatusCreated, &got)
		if got.Kind != "send_note" || got.State != "done" || got.Amount.Nano != 250_000_000 || got.NoteID != ids.Format(ids.Note, note) {
			t.Errorf("%+v", got)
		}
	}
	f.refused(f.send("POST", of(org.ID, note), body, headerIdempotencyKey, "6"), http.StatusConflict, "sent_by_hand", "")
	var got Invoice
	f.want(f.send("GET", "/orgs/"+ids.Format(ids.Org, org.ID)+"/invoices/"+ids.Format(ids.Invoice, id), ""), http.StatusOK, &got)
	if n := got.CreditNotes[1]; n.SentAt == nil || n.SentWhy != "Transfer 4712" {
		t.Errorf("%+v", n)
	}
}

func TestTheLowBalanceOfAnOrganization(t *testing.T) {
	f := setup(t)
	org, _ := f.org("Acme")
	path := "/orgs/" + ids.Format(ids.Org, org.ID) + "/low-balance"
	for _, step := range []struct {
		body string
		want int64
	}{{"", 0}, {`{"below_usd":"25.5"}`, 25_500_000_000}, {"", 25_500_000_000}, {`{"below_usd":"0"}`, 0}, {"", 0}} {
		method := "GET"
		if step.body != "" {
			method = "PUT"
		}
		var got LowBalance
		f.want(f.send(method, path, step.body), http.StatusOK, &got)
		if got.Below.Nano != step.want || got.Since != nil {
			t.Errorf("%s %s: %+v, want %d", method, step.body, got, step.want)
		}
	}
	for _, bad := range []string{"-1", "x", "9999999999"} {
		f.refused(f.send("PUT", path, `{"below_usd":"`+bad+`"}`), http.StatusBadRequest, "invalid", "below_usd")
	}
	unknown := "/orgs/" + ids.Format(ids.Org, ids.New()) + "/low-balance"
	f.refused(f.send("GET", unknown, ""), http.StatusNotFound, "not_found", "")
	f.refused(f.send("PUT", unknown, `{"below_usd":"1"}`), http.StatusNotFound, "not_found", "")
}

// A month that is not frozen has nothing to draft, and one that is drafted has nothing more.
func TestAMonthIsDraftedAgain(t *testing.T) {
	f := setup(t)
	var got Drafted
	f.want(f.send("POST", "/months/2026-09/drafts", ""), http.StatusOK, &got)
	if got.Invoices != 0 {
		t.Errorf("%+v", got)
	}
	f.refused(f.send("POST", "/months/2026-11/drafts", ""), http.StatusConflict, "month_not_frozen", "")
	future := f.send("POST", "/months/9999-12/drafts", "")
	if !bytes.Contains(future.body, []byte("has not begun")) {
		t.Errorf("a month to come: %s", future.body)
	}
	f.refused(future, http.StatusConflict, "month_not_frozen", "")
	f.refused(f.send("POST", "/months/soon/drafts", ""), http.StatusNotFound, "not_found", "")
}
