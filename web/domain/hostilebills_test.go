package domain_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/internal/ids"
)

// deed is a form of an operator about an invoice, with a fresh id.
func deed(fields ...string) url.Values {
	out := url.Values{"id": {ids.New().String()}}
	for i := 0; i+1 < len(fields); i += 2 {
		out.Set(fields[i], fields[i+1])
	}
	return out
}

func (s *shop) paid(amount string) url.Values {
	return deed("amount", amount, "reference", "T-1", "received_at", "2026-11-30")
}

func credited(amount string) url.Values {
	return deed("amount", amount, "reason", "late answers", "back", "credit")
}

// money is everything that the books and the invoices say, in words.
func (s *shop) money() (out string) {
	s.t.Helper()
	s.must(s.db.InTx(s.t.Context(), db.System().ReadOnly(), func(tx pgx.Tx) error {
		return tx.QueryRow(s.t.Context(), `SELECT
			(SELECT coalesce(string_agg(x, '; '), '') FROM (SELECT org_id || ' ' || account || ' ' || amount_nano AS x FROM ledger_balances WHERE amount_nano <> 0 ORDER BY 1) b) || ' | ' ||
			(SELECT coalesce(string_agg(number || ' ' || state || ' ' || paid_cents || ' ' || credited_cents || ' ' || given_up_cents, '; ' ORDER BY number), '') FROM invoices) || ' | ' ||
			(SELECT count(*) FROM credit_requests WHERE state = 'waiting')`).Scan(&out)
	}))
	return out
}

func (s *shop) count(sql string, args ...any) (n int64) {
	s.t.Helper()
	s.must(s.db.InTx(s.t.Context(), db.System().ReadOnly(), func(tx pgx.Tx) error { return tx.QueryRow(s.t.Context(), sql, args...).Scan(&n) }))
	return n
}

// invoices makes Acme's invoices of every state that is final, and gives their pages: the operator's and the customer's.
func (s *shop) invoices() (operators, customers map[string]string) {
	s.t.Helper()
	operators, customers = map[string]string{}, map[string]string{}
	for i, state := range []string{"open", "paid", "void", "given up"} {
		id := s.invoice(fmt.Sprintf("INV-%d", i), time.Date(2026, time.Month(10-i), 1, 0, 0, 0, 0, time.UTC))
		path := "/admin/customers/" + ids.Format(ids.Org, s.acme.ID) + "/invoices/" + ids.Format(ids.Invoice, id)
		operators[state], customers[state] = path, "/billing/invoices/"+ids.Format(ids.Invoice, id)
		var status int
		switch state {
		case "paid":
			status, _, _ = s.page(s.staff, path+"/payment", s.paid("12.34"))
		case "void":
			status, _, _ = s.page(s.staff, path+"/credit-note", credited("12.34"))
		case "given up":
			status, _, _ = s.page(s.staff, path+"/write-off", deed("reason", "bankrupt"))
		}
		if state != "open" && status != http.StatusSeeOther {
			s.t.Fatalf("%s: %d", state, status)
		}
	}
	return operators, customers
}

// What is nonsense, or more than there is, is refused with words, and moves nothing.
func TestNonsenseAboutFinalInvoicesIsRefused(t *testing.T) {
	s := newShop(t)
	at, _ := s.invoices()
	before := s.money()
	long := strings.Repeat("x", 10_000)
	forms := map[string][]url.Values{}
	for _, amount := range []string{"", "0", "-1", "-12.34", "0.001", "12.345", "NaN", "1e2", "+1", "0x10", "1,00", "1 000", "９", "99999999999999999999", "9223372036.85", "9223372036854775807", "10000000"} {
		forms["/payment"] = append(forms["/payment"], s.paid(amount))
		forms["/credit-note"] = append(forms["/credit-note"], credited(amount))
	}
	for _, text := range []string{"", " ", long, "a\x00b", "\xff\xfe", "a\u2028b", "\u202egpj.exe"} {
		forms["/payment"] = append(forms["/payment"], deed("amount", "1", "reference", text, "received_at", "2026-11-30"))
	}
	for _, text := range []string{"", " ", long, "a\x00b", "\xff\xfe"} {
		forms["/credit-note"] = append(forms["/credit-note"], deed("amount", "1", "reason", text, "back", "credit"))
		forms["/write-off"] = append(forms["/write-off"], deed("reason", text))
	}
	for _, day := range []string{"", "soon", "2026-13-01", "2026-02-30", "0001-01-01", "0000-00-00", "1970-01-01", "2026-12-09", "9999-12-31", "10000-01-01", "-2026-01-01"} {
		forms["/payment"] = append(forms["/payment"], deed("amount", "1", "reference", "T-2", "received_at", day))
	}
	for _, back := range []string{"cash; drop", "CREDIT", "\x00"} {
		forms["/credit-note"] = append(forms["/credit-note"], deed("amount", "1", "reason", "late", "back", back))
	}
	for _, id := range []string{"", long, "\x00", "in_1Hacked:1234"} {
		form := s.paid("1")
		form.Set("id", id)
		forms["/payment"] = append(forms["/payment"], form)
	}
	for state, path := range at {
		for deed, list := range forms {
			for _, form := range list {
				status, _, _ := s.page(s.staff, path+deed, form)
				if status != http.StatusUnprocessableEntity && status != http.StatusBadRequest {
					t.Errorf("%s%s with %.200q answers %d", state, deed, form, status)
				}
			}
		}
	}
	if after := s.money(); after != before {
		t.Errorf("it moved something:\n%s\n%s", before, after)
	}
}

// A date that is nothing of the kind makes no contract, and not one without an end.
func TestAContractsDatesAreChecked(t *testing.T) {
	s := newShop(t)
	path := "/admin/customers/" + ids.Format(ids.Org, s.acme.ID) + "/contracts"
	for _, day := range []string{"0001-01-01", "0001-01-01 00:00", "0000-00-00", "soon", "2026-02-30", "1970-01-01", "9999-12-31", "2201-01-01", "10000-01-01"} {
		for _, field := range []string{"starts_at", "ends_at"} {
			if status, _, _ := s.page(s.staff, path, url.Values{"book": {"standard"}, field: {day}}); status != http.StatusUnprocessableEntity {
				t.Errorf("%s %s answers %d", field, day, status)
			}
		}
	}
	if n := s.count(`SELECT count(*) FROM price_contracts`); n != 0 {
		t.Errorf("%d contracts", n)
	}
}

// What an invoice's state does not allow is refused, whoever asks first.
func TestFinalInvoicesTakeNoMoreThanThereIs(t *testing.T) {
	s := newShop(t)
	at, _ := s.invoices()
	before := s.money()
	for path, forms := range map[string][]url.Values{
		at["open"] + "/payment":         {s.paid("12.35")},
		at["open"] + "/credit-note":     {credited("12.35")},
		at["paid"] + "/payment":         {s.paid("0.01")},
		at["paid"] + "/credit-note":     {credited("12.35"), deed("amount", "1", "reason", "late", "back", "stripe")},
		at["paid"] + "/write-off":       {deed("reason", "gone")},
		at["void"] + "/payment":         {s.paid("0.01")},
		at["void"] + "/credit-note":     {credited("0.01")},
		at["void"] + "/write-off":       {deed("reason", "gone")},
		at["given up"] + "/credit-note": {credited("0.01")},
		at["given up"] + "/write-off":   {deed("reason", "gone")},
		at["given up"] + "/payment":     {s.paid("12.35")},
	} {
		for _, form := range forms {
			if status, _, _ := s.page(s.staff, path, form); status != http.StatusUnprocessableEntity {
				t.Errorf("%s with %v answers %d", path, form, status)
			}
		}
	}
	if after := s.money(); after != before {
		t.Errorf("it moved something:\n%s\n%s", before, after)
	}
	// Given up, and the money comes after all: once.
	if status, _, _ := s.page(s.staff, at["given up"]+"/payment", s.paid("12.34")); status != http.StatusSeeOther {
		t.Errorf("paid after all: %d", status)
	}
	if status, _, _ := s.page(s.staff, at["given up"]+"/payment", s.paid("0.01")); status != http.StatusUnprocessableEntity {
		t.Errorf("and more: %d", status)
	}
	// A key is of one invoice.
	form := s.paid("1")
	if status, _, _ := s.page(s.staff, at["open"]+"/payment", form); status != http.StatusSeeOther {
		t.Errorf("paid in part: %d", status)
	}
	if status, _, _ := s.page(s.staff, at["paid"]+"/payment", form); status != http.StatusUnprocessableEntity {
		t.Errorf("the same form for another invoice: %d", status)
	}
}

// Two clicks, two windows, two operators: what there is goes once.
func TestDoubleClicksOnFinalInvoices(t *testing.T) {
	s := newShop(t)
	month := time.Date(2026, time.October, 1, 0, 0, 0, 0, time.UTC)
	for i, c := range []struct {
		deed string
		same bool // the same form
		form func() url.Values
	}{
		{"/payment", true, func() url.Values { return s.paid("12.34") }},
		{"/payment", false, func() url.Values { return s.paid("12.34") }},
		{"/credit-note", true, func() url.Values { return credited("12.34") }},
		{"/credit-note", false, func() url.Values { return credited("12.34") }},
		{"/write-off", true, func() url.Values { return deed("reason", "gone") }},
		{"/write-off", false, func() url.Values { return deed("reason", "gone") }},
	} {
		t.Run(fmt.Sprintf("%s, the same form %t", c.deed, c.same), func(t *testing.T) {
			id := s.invoice(fmt.Sprintf("INV-%d", i), month.AddDate(0, -i, 0))
			path := "/admin/customers/" + ids.Format(ids.Org, s.acme.ID) + "/invoices/" + ids.Format(ids.Invoice, id) + c.deed
			one := c.form()
			var done, refused atomic.Int64
			var all sync.WaitGroup
			for range 6 {
				form := one
				if !c.same {
					form = c.form()
				}
				all.Go(func() {
					switch status, _, _ := s.page(s.staff, path, form); status {
					case http.StatusSeeOther:
						done.Add(1)
					case http.StatusUnprocessableEntity:
						refused.Add(1)
					default:
						t.Errorf("answers %d", status)
					}
				})
			}
			all.Wait()
			if want := map[bool]int64{true: 6, false: 1}[c.same]; done.Load() != want || done.Load()+refused.Load() != 6 {
				t.Errorf("%d done, %d refused", done.Load(), refused.Load())
			}
			if owed := s.count(`SELECT total_cents - paid_cents - relieved_cents - given_up_cents FROM invoices WHERE id = $1`, id); owed != 0 {
				t.Errorf("%d are due", owed)
			}
			if n := s.count(`SELECT (SELECT count(*) FROM invoice_payments WHERE invoice_id = $1) + (SELECT count(*) FROM credit_notes WHERE invoice_id = $1) + (SELECT count(*) FROM audit_log WHERE action = 'invoice.write_off' AND target = $2)`, id, ids.Format(ids.Invoice, id)); n != 1 {
				t.Errorf("%d times", n)
			}
		})
	}
}

// Nobody but an operator acts, nobody but its organization and operators reads, and an invoice is of the organization that the
// address names.
func TestStrangersToAnInvoice(t *testing.T) {
	s := newShop(t)
	at, mine := s.invoices()
	var note ids.ID
	s.must(s.db.InTx(t.Context(), db.System().ReadOnly(), func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `SELECT id FROM credit_notes`).Scan(&note)
	}))
	before := s.money()
	reads := []string{"", "?format=csv", "/pdf", "/payment", "/credit-note", "/write-off", "/credit-notes/" + ids.Format(ids.Note, note), "/credit-notes/" + ids.Format(ids.Note, note) + "/sent-by-hand"}
	acts := map[string]url.Values{"/payment": s.paid("1"), "/credit-note": credited("1"), "/write-off": deed("reason", "x"), "/finalize": {},
		"/credit-notes/" + ids.Format(ids.Note, note) + "/sent-by-hand": deed("reason", "x")}
	acme, bluefin := ids.Format(ids.Org, s.acme.ID), ids.Format(ids.Org, s.bluefin.ID)
	for _, path := range at {
		for _, who := range []string{s.owner, s.viewing, s.rival} {
			for _, read := range reads {
				if status, body, _ := s.page(who, path+read, nil); status != http.StatusNotFound || strings.Contains(body, "12.34") {
					t.Errorf("%s%s answers %d to a customer", path, read, status)
				}
			}
			for act, form := range acts {
				if status, _, _ := s.page(who, path+act, form); status != http.StatusNotFound {
					t.Errorf("%s%s answers %d to a customer", path, act, status)
				}
			}
		}
		wrong := strings.Replace(path, acme, bluefin, 1)
		for _, read := range reads {
			if status, body, _ := s.page(s.staff, wrong+read, nil); status != http.StatusNotFound || strings.Contains(body, "12.34") {
				t.Errorf("%s%s answers %d", wrong, read, status)
			}
		}
		for act, form := range acts {
			if status, _, _ := s.page(s.staff, wrong+act, form); status != http.StatusNotFound {
				t.Errorf("%s%s answers %d", wrong, act, status)
			}
		}
	}
	for _, path := range mine {
		for _, read := range []string{"", "?format=csv", "/pdf", "/credit-notes/" + ids.Format(ids.Note, note)} {
			if status, body, _ := s.page(s.rival, path+read, nil); status != http.StatusNotFound || strings.Contains(body, "12.34") {
				t.Errorf("%s%s answers %d to another organization", path, read, status)
			}
		}
		if status, _, _ := s.page(s.owner, path+"/payment", s.paid("1")); status != http.StatusNotFound {
			t.Errorf("%s/payment answers %d", path, status)
		}
	}
	if after := s.money(); after != before {
		t.Errorf("it moved something:\n%s\n%s", before, after)
	}
}
