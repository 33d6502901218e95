package domain_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	pricing "millrace/billing/price"
	"millrace/billing/reconcile"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// look is a page, who looks at it, and what it must show.
type look struct {
	who, path string
	shows     []string
}

// everyPage lists the console's pages. balance is what Acme has left.
func (s *shop) everyPage(balance string) []look {
	key, org := "/keys/"+ids.Format(ids.Key, s.ci.ID), "/admin/customers/"+ids.Format(ids.Org, s.acme.ID)
	model, unit := "/admin/models/"+ids.Format(ids.Model, s.small.ID), "/admin/units/"
	return []look{
		{s.owner, "/", []string{"Acme Robotics", balance, "$0.0004", "$0.0008", "of the $1.00 cap", "simulat"}},
		{s.owner, "/palette", []string{"ci-nightly", "demo/large"}},
		{s.owner, "/keys", []string{"ci-nightly", "support-bot", s.ci.Prefix, s.ci.Last4, "$0.0002"}},
		{s.owner, "/keys?format=csv", []string{"ci-nightly", "0.00024"}},
		{s.owner, "/keys/new", []string{"bots"}},
		{s.owner, key, []string{"ci-nightly", "dana@acme.example"}},
		{s.owner, key + "/revoke", []string{"ci-nightly"}},
		{s.owner, "/usage", []string{"demo/small", "demo/large", "$0.0067"}},
		{s.owner, "/usage?format=csv", []string{"demo/large,1,0,2000,0,200,0.0056", "demo/small,5,1,1610,1800,185,0.00108"}},
		{s.owner, "/usage?group=key&range=today", []string{"ci-nightly", "Playground", "support-bot"}},
		{s.owner, "/usage?group=key&range=today&format=csv", []string{"Playground,1,0,10,0,20,0.000025", "ci-nightly,1,0,200,1800,50,0.00024", "support-bot,1,1,300,0,5,0.000155"}},
		{s.owner, "/usage?group=day&range=7d&metric=tokens", []string{"28 Nov"}},
		{s.owner, "/usage?group=model&key=" + ids.Format(ids.Key, s.ci.ID), []string{"key ci-nightly"}},
		{s.owner, "/requests", []string{"ci-nightly", "Playground", "broke off", "demo/large"}},
		{s.owner, "/requests?ended=failed", []string{"support-bot", "broke off"}},
		{s.owner, "/requests/" + ids.Format(ids.Request, s.calls[4]), []string{"small/gpu-1", "large/1", "not_ready", "$0.00024"}},
		{s.owner, "/playground", []string{"demo/small (simulated engine)"}},
		{s.owner, "/models", []string{"demo/small", "$0.50", "$8.00", "not served"}},
		{s.owner, "/billing", []string{balance, "Usage, 28 November (1 request)", "Credit: Invoice 7", "$20.00"}},
		{s.owner, "/billing?format=csv", []string{"-0.0056"}},
		{s.owner, "/billing/invoices", []string{"So far in November 2026", "No invoices"}},
		{s.owner, "/billing/invoices/so-far", []string{"Paid from credit", "demo/small, cached input", "$0.0066"}},
		{s.owner, "/billing/invoices/so-far?format=csv", []string{"demo/large"}},
		{s.owner, "/billing/details", []string{"Legal name", "Tax id"}},
		{s.owner, "/limits", []string{"$1.00", "bots", "support-bot"}},
		{s.owner, "/limits/key/" + ids.Format(ids.Key, s.ci.ID), []string{"ci-nightly"}},
		{s.owner, "/limits/org/" + ids.Format(ids.Org, s.acme.ID), []string{"Acme Robotics"}},
		{s.owner, "/members", []string{"dana@acme.example", "kim@acme.example", "viewer"}},
		{s.owner, "/audit", []string{"key.create", "key ci-nightly", "Millrace"}},
		{s.staff, "/admin", []string{"$0.0072", "engines = events = ledger up to", "1 host is not connected", "2 active in the last 24 hours"}},
		{s.staff, "/admin/palette", []string{"Acme Robotics", "demo/small", "large/1"}},
		{s.staff, "/admin/customers", []string{"Acme Robotics", "Bluefin", balance}},
		{s.staff, "/admin/customers?q=kim@", []string{"Acme Robotics"}},
		{s.staff, "/admin/customers/new", []string{"Time zone"}},
		{s.staff, org, []string{"Acme Robotics", "ci-nightly", "Invoice 7", "kim@acme.example", balance}},
		{s.staff, org + "/credit", []string{"Acme Robotics"}},
		{s.staff, "/admin/models", []string{"demo/small", "$0.50", "on sale"}},
		{s.staff, model, []string{"demo/small", "in force", "Millrace"}},
		{s.staff, model + "/price", []string{"0.5"}},
		{s.staff, "/admin/revenue?month=2026-11", []string{"Acme Robotics", "demo/large", "Bluefin", "$0.0072"}},
		{s.staff, "/admin/revenue?month=2026-11&format=csv", []string{"Acme Robotics,demo/large,1,2000,0,200,0.0056", "Acme Robotics,demo/small,5,1610,1800,185,0.00108", "Bluefin,demo/small,1,1000,0,0,0.0005"}},
		{s.staff, "/admin/invoices", []string{"Overdue", "No invoices here"}},
		{s.staff, "/admin/months", []string{"November 2026", "open"}},
		{s.staff, "/admin/months/2026-11", []string{"freezes on 3 Dec 2026", "Ties out with the ledger", "Recognised revenue"}},
		{s.staff, "/admin/months/2026-11?format=csv", []string{"Customer,Revenue,Breakage"}},
		{s.staff, "/admin/months/2026-11/close", []string{"It cannot be closed yet", "3 December 2026"}},
		{s.staff, "/admin/hosts", []string{"gpu-1", "rack-a", "NVIDIA H200", "spare-1"}},
		{s.staff, "/admin/hosts/" + ids.Format(ids.Host, s.host), []string{"gpu-1", "256 GiB", "small/gpu-1"}},
		{s.staff, "/admin/units", []string{"small/gpu-1", "large/1", "serving", "starting"}},
		{s.staff, "/admin/units/attach", []string{"vLLM"}},
		{s.staff, unit + ids.Format(ids.Unit, s.sim), []string{"release 1", "gpu-1"}},
		{s.staff, unit + ids.Format(ids.Unit, s.real) + "/detach", []string{"large/1"}},
		{s.staff, "/admin/reconcile", []string{"rollups: charged", "$0.0072"}},
		{s.staff, "/admin/exceptions", []string{"output count 5000000 is impossible"}},
		{s.staff, "/admin/audit", []string{"unit.attach", "price of demo/small", "Bluefin"}},
		{s.staff, "/admin/outbox", []string{"kim@acme.example", publicURL + "/login/link?t="}},
	}
}

// Every page of the console over the real domain: it answers, and shows the figures that the domain has.
func TestEveryPage(t *testing.T) {
	s := newShop(t)
	_, err := reconcile.Run(t.Context(), reconcile.Config{DB: s.db, Clock: &hurried{at: now}})
	s.must(err)
	s.exec(`INSERT INTO quarantine (id, shard, incarnation, seq, position, reason, payload) VALUES ($1, 0, 'x', 1, 0, 'output count 5000000 is impossible', '')`, ids.New())
	s.must(s.tenants.RequestLink(t.Context(), "kim@acme.example"))
	b, err := s.desk.Balance(t.Context(), s.root, s.acme.ID)
	s.must(err)
	balance := ui.FormatMoney(b.Available)
	for _, p := range s.everyPage(balance) {
		status, body, _ := s.page(p.who, p.path, nil)
		if status != http.StatusOK {
			t.Errorf("%s answers %d", p.path, status)
			continue
		}
		for _, text := range p.shows {
			if !strings.Contains(body, text) {
				t.Errorf("%s does not show %q", p.path, text)
			}
		}
	}
	for path, who := range map[string]string{"/admin": s.owner, "/keys/new": s.viewing, "/billing": s.viewing, "/billing/invoices": s.viewing, "/billing/details": s.viewing, "/admin/invoices": s.owner, "/audit": s.viewing, "/keys/" + ids.Format(ids.Key, s.ci.ID): s.rival,
		"/requests/" + ids.Format(ids.Request, s.calls[0]): s.rival, "/limits/key/" + ids.Format(ids.Key, s.ci.ID): s.rival} {
		if status, _, _ := s.page(who, path, nil); status != http.StatusNotFound && status != http.StatusForbidden {
			t.Errorf("%s answers %d to who may not see it", path, status)
		}
	}
}

// The pages' forms do what they say, over HTTP.
func TestForms(t *testing.T) {
	s := newShop(t)
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
	id := ids.New().String()
	body, _ := send(s.owner, "/keys", http.StatusOK, "id", id, "name", "web", "project", ids.Format(ids.Project, s.bots.ID), "cap", "2.5")
	if !strings.Contains(body, "mr_live_") || !strings.Contains(body, publicURL) {
		t.Error("the new key is not shown")
	}
	body, _ = send(s.owner, "/keys", http.StatusUnprocessableEntity, "id", id, "name", "web", "project", ids.Format(ids.Project, s.bots.ID))
	if strings.Contains(body, "mr_live_") || !strings.Contains(body, "This form was sent already") {
		t.Error("sending the form twice is not told")
	}
	_, to := send(s.owner, "/limits/project/"+ids.Format(ids.Project, s.bots.ID), http.StatusSeeOther, "cap", "40")
	if to != "/limits?done=cap" {
		t.Errorf("after a cap: %s", to)
	}
	send(s.owner, "/keys/"+ids.Format(ids.Key, s.ci.ID)+"/revoke", http.StatusSeeOther, "confirm", "ci-nightly")
	body, _ = send(s.owner, "/playground/key", http.StatusOK)
	if !strings.Contains(body, "mr_live_") {
		t.Error("no playground key")
	}
	_, customer := send(s.staff, "/admin/customers", http.StatusSeeOther, "name", "Coral", "email", "cora@coral.example", "zone", "UTC", "credit", "5")
	send(s.staff, "/admin/customers", http.StatusUnprocessableEntity, "name", "Coral", "email", "cora@coral.example", "zone", "UTC", "credit", "5")
	customer, _, _ = strings.Cut(customer, "?")
	grant := []string{"id", ids.New().String(), "amount", "7", "reason", "sorry", "promo", "1"}
	send(s.staff, customer+"/credit", http.StatusSeeOther, grant...)
	send(s.staff, customer+"/credit", http.StatusUnprocessableEntity, grant...)
	if _, body, _ := s.page(s.staff, customer, nil); !strings.Contains(body, "$12.00") || !strings.Contains(body, "sorry") {
		t.Error("the new customer's page does not show $12.00")
	}
	price := []string{"input", "0.55", "cached", "0.05", "output", "1.1", "step", "publish"}
	send(s.staff, "/admin/models/"+ids.Format(ids.Model, s.small.ID)+"/price", http.StatusSeeOther, price...)
	if _, body, _ := s.page(s.owner, "/models", nil); !strings.Contains(body, "$0.55") {
		t.Error("the customer does not see the new price")
	}
	body, _ = send(s.staff, "/admin/hosts/join", http.StatusOK)
	if !strings.Contains(body, hubURL) {
		t.Error("no join command")
	}
	_, to = send(s.staff, "/admin/units", http.StatusSeeOther, "name", "acme/new", "url", "http://127.0.0.1:1", "engine", "vllm")
	if !strings.HasPrefix(to, "/admin/models/") {
		t.Errorf("after attaching: %s", to)
	}
	deal := map[usage.Class]money.Pico{}
	for c := range usage.NumClasses {
		deal[c] = 0
	}
	deal[usage.Input], deal[usage.Cached], deal[usage.Output] = 400_000, 50_000, 900_000
	_, err := s.prices.Create(t.Context(), s.root, pricing.Draft{Model: s.small.ID, Book: "deal", Prices: deal, Confirm: "demo/small"})
	s.must(err)
	contracts := "/admin/customers/" + ids.Format(ids.Org, s.acme.ID) + "/contracts"
	send(s.staff, contracts, http.StatusUnprocessableEntity, "book", "nobody")
	send(s.staff, contracts, http.StatusUnprocessableEntity, "book", "deal", "starts_at", "soon")
	send(s.staff, contracts, http.StatusSeeOther, "book", "deal", "starts_at", "2027-01-01", "ends_at", "2027-07-01 12:00", "note", "Order 9")
	list, err := s.prices.Contracts(t.Context(), s.root, s.acme.ID)
	s.must(err)
	send(s.staff, contracts+"/"+ids.Format(ids.Pact, list[0].ID)+"/end", http.StatusSeeOther)
	if _, body, _ := s.page(s.staff, contracts, nil); len(list) != 1 || !strings.Contains(body, "taken back") || !strings.Contains(body, "Order 9") {
		t.Errorf("contracts: %v", list)
	}
	send(s.owner, "/limits/low-balance", http.StatusUnprocessableEntity, "below", "-1")
	send(s.viewing, "/limits/low-balance", http.StatusForbidden, "below", "25")
	send(s.owner, "/limits/low-balance", http.StatusSeeOther, "below", "25")
	if _, body, _ := s.page(s.owner, "/limits", nil); !strings.Contains(body, "When the balance falls below $25.00") {
		t.Error("the limits page does not tell the threshold")
	}
	send(s.staff, "/admin/months/2026-11/close", http.StatusUnprocessableEntity, "confirm", "2026-11")
	send(s.staff, "/admin/months/2026-11/draft", http.StatusUnprocessableEntity)
	send(s.staff, "/admin/units/"+ids.Format(ids.Unit, s.real)+"/detach", http.StatusSeeOther)
}
