package domain_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"millrace/internal/ids"
)

// What leads from an invoice's page to a payment that never came, and to a credit note's document.
var (
	undoLink = regexp.MustCompile(`href="([^"]*/payments/pay_[0-9a-f]+/reversal)"`)
	noteLink = regexp.MustCompile(`href="([^"]*/credit-notes/cn_[0-9a-f]+)"`)
)

func TestAPaymentIsTakenBackAndANoteIsDownloaded(t *testing.T) {
	s := newShop(t)
	id := s.invoice("INV-7", time.Date(2026, time.October, 1, 0, 0, 0, 0, time.UTC))
	mine, theirs := "/billing/invoices/"+ids.Format(ids.Invoice, id), "/admin/customers/"+ids.Format(ids.Org, s.acme.ID)+"/invoices/"+ids.Format(ids.Invoice, id)
	ask := func(who, path string, want int, form url.Values) string {
		t.Helper()
		status, body, _ := s.page(who, path, form)
		if status != want {
			t.Errorf("%s answers %d, want %d", path, status, want)
		}
		return body
	}
	form := func(fields ...string) url.Values {
		out := url.Values{"id": {ids.New().String()}}
		for i := 0; i+1 < len(fields); i += 2 {
			out.Set(fields[i], fields[i+1])
		}
		return out
	}
	found := func(what *regexp.Regexp, who, path string) string {
		t.Helper()
		m := what.FindStringSubmatch(ask(who, path, http.StatusOK, nil))
		if m == nil {
			t.Fatalf("%s leads to no %s", path, what)
		}
		return m[1]
	}
	ask(s.staff, theirs+"/payment", http.StatusSeeOther, form("amount", "2.34", "reference", "T-1", "received_at", "2026-11-30"))
	ask(s.staff, theirs+"/credit-note", http.StatusSeeOther, form("amount", "4", "reason", "late answers", "back", "credit"))
	for who, path := range map[string]string{s.owner: mine, s.staff: theirs} {
		link := found(noteLink, who, path)
		if body := ask(who, link, http.StatusOK, nil); !strings.HasPrefix(body, "%PDF-") {
			t.Errorf("the document begins with %.20q", body)
		}
		ask(s.rival, link, http.StatusNotFound, nil)
		ask(who, path+"/credit-notes/"+ids.Format(ids.Note, ids.New()), http.StatusNotFound, nil)
	}
	undo := found(undoLink, s.staff, theirs)
	if undoLink.MatchString(ask(s.owner, mine, http.StatusOK, nil)) {
		t.Error("a customer can take a payment back")
	}
	ask(s.owner, undo, http.StatusNotFound, nil)
	if body := ask(s.staff, undo, http.StatusOK, nil); !strings.Contains(body, "$2.34 (T-1)") {
		t.Error("the form does not say what is taken back")
	}
	ask(s.staff, undo, http.StatusUnprocessableEntity, form("reason", " "))
	ask(s.staff, undo, http.StatusSeeOther, form("reason", "It was recalled"))
	ask(s.staff, undo, http.StatusConflict, nil)
	ask(s.staff, undo, http.StatusConflict, form("reason", "It was recalled"))
	if body := ask(s.owner, mine, http.StatusOK, nil); !strings.Contains(body, "never came, taken back on 30 Nov 2026") || !strings.Contains(body, "$8.34") || strings.Contains(body, "It was recalled") {
		t.Error("the customer does not see that it was taken back, or sees why")
	}
	if body := ask(s.staff, theirs, http.StatusOK, nil); !strings.Contains(body, "It was recalled") || undoLink.MatchString(body) {
		t.Error("the operator does not see why, or can do it again")
	}
}
