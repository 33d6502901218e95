package control

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/internal/ids"
)

// Nonsense about a final invoice is the client's mistake, said with the field, and moves nothing.
func TestNonsenseAboutAnInvoiceIsRefused(t *testing.T) {
	f := setup(t)
	org, _ := f.org("Acme")
	other, _ := f.org("Other")
	id := f.invoice(org.ID)
	path := "/orgs/" + ids.Format(ids.Org, org.ID) + "/invoices/" + ids.Format(ids.Invoice, id)
	long := strings.Repeat("x", 1000)
	bad := map[string][]string{}
	for _, amount := range []string{`""`, `"0"`, `"-1"`, `"0.001"`, `"NaN"`, `"1e2"`, `"99999999999999999999"`, `"9223372036.85"`, `"12.35"`, `1`, `null`, `[]`} {
		bad["/payments"] = append(bad["/payments"], `{"amount_usd":`+amount+`,"reference":"T-1"}`)
		bad["/credit-notes"] = append(bad["/credit-notes"], `{"amount_usd":`+amount+`,"reason":"late"}`)
	}
	for _, text := range []string{``, ` `, long, `a\u0000b`, `\u202egpj`, `\u2028`} {
		bad["/payments"] = append(bad["/payments"], `{"amount_usd":"1","reference":"`+text+`"}`)
		bad["/credit-notes"] = append(bad["/credit-notes"], `{"amount_usd":"1","reason":"`+text+`"}`)
		bad["/write-off"] = append(bad["/write-off"], `{"reason":"`+text+`"}`)
	}
	for _, at := range []string{`"0001-01-01T00:00:00Z"`, `"1970-01-01T00:00:00Z"`, `"9999-12-31T00:00:00Z"`, `"2026-02-30T00:00:00Z"`, `"yesterday"`, `0`} {
		bad["/payments"] = append(bad["/payments"], `{"amount_usd":"1","reference":"T-1","received_at":`+at+`}`)
	}
	bad["/credit-notes"] = append(bad["/credit-notes"], `{"amount_usd":"1","reason":"late","back":"cash; drop"}`, `{"amount_usd":"1","reason":"late","back":"Credit"}`)
	for _, body := range []string{`{`, `null`, `[]`, `{"x":1}`} {
		for _, deed := range []string{"/payments", "/credit-notes", "/write-off"} {
			bad[deed] = append(bad[deed], body)
		}
	}
	n := 0
	for deed, bodies := range bad {
		for _, body := range bodies {
			n++
			if a := f.send("POST", path+deed, body, headerIdempotencyKey, fmt.Sprint("bad ", n)); a.status != http.StatusBadRequest && a.status != http.StatusConflict {
				t.Errorf("%s %.100s: %d %s", deed, body, a.status, a.body)
			}
		}
	}
	good := map[string]string{"/payments": `{"amount_usd":"1","reference":"T-1"}`, "/credit-notes": `{"amount_usd":"1","reason":"late"}`, "/write-off": `{"reason":"gone"}`}
	for deed, body := range good {
		for _, key := range []string{"", "\xff\xfe", strings.Repeat("k", 300)} {
			if a := f.send("POST", path+deed, body, headerIdempotencyKey, key); a.status != http.StatusBadRequest {
				t.Errorf("%s with the key %.20q: %d %s", deed, key, a.status, a.body)
			}
		}
		wrong := strings.Replace(path, ids.Format(ids.Org, org.ID), ids.Format(ids.Org, other.ID), 1)
		f.refused(f.send("POST", wrong+deed, body, headerIdempotencyKey, "other"), http.StatusNotFound, "not_found", "")
	}
	f.refused(f.send("POST", path+"/payments", good["/payments"], headerIdempotencyKey, "in_1Hacked:1234"), http.StatusBadRequest, "invalid", "idempotency_key")
	var got Invoice
	f.want(f.send("GET", path, ""), http.StatusOK, &got)
	if got.Due.Nano != 12_340_000_000 || len(got.Payments)+len(got.CreditNotes) != 0 {
		t.Errorf("it moved something: %+v", got)
	}
}

// A NUL in any text is the client's mistake, said with the field: no database keeps it.
func TestANULIsRefused(t *testing.T) {
	f := setup(t)
	host := "/hosts/" + ids.Format(ids.Host, ids.New())
	demand := "/demands/" + ids.Format(ids.Model, ids.New()) + "/" + ids.Format(ids.Recipe, ids.New())
	f.refused(f.send("PUT", host+"/cordon", `{"reason":"a\u0000b"}`), http.StatusBadRequest, "invalid", "reason")
	f.refused(f.send("PUT", demand, `{"units":1,"regions":["fi","\u0000"]}`), http.StatusBadRequest, "invalid", "regions")
	f.refused(f.send("POST", "/plans", `{"note":"\\\u0000"}`), http.StatusBadRequest, "invalid", "note")
	if a := f.send("PUT", host+"/cordon", `{"reason":"a\\u0000b"}`); a.status != http.StatusNotFound {
		t.Errorf("a text that only looks like a NUL: %d %s", a.status, a.body)
	}
}

// Many at once, each with a key of its own: what is due is paid, credited or given up once.
func TestAnInvoiceIsSettledOnce(t *testing.T) {
	for deed, body := range map[string]string{"/payments": `{"amount_usd":"12.34","reference":"T-1"}`, "/credit-notes": `{"amount_usd":"12.34","reason":"late"}`, "/write-off": `{"reason":"gone"}`} {
		t.Run(deed[1:], func(t *testing.T) {
			f := setup(t)
			org, _ := f.org("Acme")
			path := "/orgs/" + ids.Format(ids.Org, org.ID) + "/invoices/" + ids.Format(ids.Invoice, f.invoice(org.ID))
			var done atomic.Int64
			var all sync.WaitGroup
			for n := range 6 {
				all.Go(func() {
					switch a := f.send("POST", path+deed, body, headerIdempotencyKey, fmt.Sprint(n)); a.status {
					case http.StatusCreated:
						done.Add(1)
					case http.StatusConflict:
					default:
						t.Errorf("%d %s", a.status, a.body)
					}
				})
			}
			all.Wait()
			var got Invoice
			f.want(f.send("GET", path, ""), http.StatusOK, &got)
			if done.Load() != 1 || got.Due.Nano != 0 {
				t.Errorf("done %d times, %+v are due", done.Load(), got.Due)
			}
		})
	}
}

// A payment is taken back through its own invoice, by one of many who try at once.
func TestAPaymentIsTakenBackOnce(t *testing.T) {
	f := setup(t)
	org, _ := f.org("Acme")
	other, _ := f.org("Other")
	id := f.invoice(org.ID)
	payment, _ := f.settled(org.ID, id)
	of := func(org, id ids.ID) string {
		return "/orgs/" + ids.Format(ids.Org, org) + "/invoices/" + ids.Format(ids.Invoice, id) + "/payments/" + ids.Format(paymentPrefix, payment) + "/reversal"
	}
	f.refused(f.send("PUT", of(org.ID, ids.New()), `{"reason":"x"}`), http.StatusNotFound, "not_found", "")
	f.refused(f.send("PUT", of(other.ID, id), `{"reason":"x"}`), http.StatusNotFound, "not_found", "")
	f.refused(f.send("PUT", of(org.ID, id), `{"reason":"a\u0000b"}`), http.StatusBadRequest, "invalid", "reason")
	var done atomic.Int64
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if a := f.send("PUT", of(org.ID, id), `{"reason":"It was recalled"}`); a.status == http.StatusOK {
				done.Add(1)
			} else if a.status != http.StatusConflict {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	var got Invoice
	f.want(f.send("GET", "/orgs/"+ids.Format(ids.Org, org.ID)+"/invoices/"+ids.Format(ids.Invoice, id), ""), http.StatusOK, &got)
	if done.Load() != 1 || got.Paid.Nano != 0 {
		t.Errorf("taken back %d times, %+v are paid", done.Load(), got.Paid)
	}
}
