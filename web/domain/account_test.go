package domain_test

import (
	"fmt"
	"slices"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/web/console"
	"millrace/web/ui"
)

func TestBilling(t *testing.T) {
	s := newShop(t)
	b, err := s.site.Customer.Billing(s.as(s.owner), s.viewer(s.owner), "")
	s.must(err)
	left, balance := usd(t, "20.007")-acmeSpent, usd(t, "20.007")-acmeSpent
	got := map[string]money.Nano{}
	for _, l := range b.Lines { // in an order that depends on today: the ledger dates its transactions by itself
		if l.After != balance {
			t.Errorf("the balance behind %q is %s, want %s", l.Text, l.After, balance)
		}
		balance -= l.Amount
		got[l.Kind+": "+l.Text] = l.Amount
	}
	want := map[string]money.Nano{
		"usage: Usage, 30 November (4 requests)": -(lateCI + decemberCI + brokenBot + playedOnce),
		"usage: Usage, 28 November (1 request)":  -novemberBot,
		"usage: Usage, 10 November (1 request)":  -novemberCI,
		"credit: Credit: Welcome":                usd(t, "0.007"),
		"credit: Credit: Invoice 7":              usd(t, "20"),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || balance != 0 || b.Next != "" || b.Balance.Total+b.Balance.Held != left {
		t.Errorf("lines\n%v\nwant\n%v\nthe oldest begins with %s, balance %+v", got, want, balance, b.Balance)
	}
	if _, err := s.site.Customer.Billing(s.as(s.viewing), s.viewer(s.viewing), ""); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a viewer's billing: %v, want Forbidden", err)
	}
}

// More lines than a page holds: the pages together are all of them, and the balance runs on.
func TestBillingPages(t *testing.T) {
	s := newShop(t)
	for i := range 60 {
		s.must(s.give(grantOf(s.acme.ID, "0.01", fmt.Sprint("gift ", i))))
	}
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	var all []console.LedgerLine
	for after := ""; ; {
		b, err := s.site.Customer.Billing(ctx, who, after)
		s.must(err)
		all = append(all, b.Lines...)
		if after = b.Next; after == "" {
			break
		}
	}
	balance := usd(t, "20.607") - acmeSpent
	for i, l := range all {
		if l.After != balance {
			t.Fatalf("line %d (%s) has balance %s, want %s", i, l.Text, l.After, balance)
		}
		balance -= l.Amount
	}
	if len(all) != 65 || balance != 0 {
		t.Errorf("%d lines that begin with %s, want 65 that begin with nothing", len(all), balance)
	}
}

func TestMembers(t *testing.T) {
	s := newShop(t)
	_, err := s.tenants.AddMember(t.Context(), s.root, s.acme.ID, "new@acme.example", tenants.Developer)
	s.must(err)
	list, err := s.site.Customer.Members(s.as(s.owner), s.viewer(s.owner))
	s.must(err)
	if len(list) != 3 || list[0].Email != "dana@acme.example" || list[0].Role != "owner" || !list[0].LastSeen.Equal(now) || list[0].Pending {
		t.Errorf("members %+v", list)
	}
	if fresh := list[2]; fresh.Email != "new@acme.example" || !fresh.LastSeen.IsZero() || !fresh.Pending || fresh.Role != "developer" {
		t.Errorf("who was just invited: %+v", fresh)
	}
}

func TestAudit(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	half := usd(t, "0.25")
	s.must(s.site.Change.SetCap(ctx, who, console.CapChange{Scope: console.ScopeKey, ID: s.ci.ID, Cap: &half}))
	list, err := s.site.Customer.Audit(ctx, who, "")
	s.must(err)
	top := list.Entries[0]
	if top.Actor != "dana@acme.example" || top.Action != "cap.set" || top.Target != "key ci-nightly" || top.Change != "cap per month $0.5000 → $0.2500" || top.IP != "192.0.2.7" || top.Org != "Acme Robotics" {
		t.Errorf("the newest entry %+v", top)
	}
	said := map[string]ui.AuditEntry{}
	for _, e := range slices.Backward(list.Entries) {
		said[e.Action+" "+e.Target] = e // the newest
	}
	for key, change := range map[string]string{
		"credit.grant credit":         "$0.0070 promotional: Welcome",
		"key.create key support-bot":  "name support-bot",
		"project.create project bots": "name bots",
		"org.create Acme Robotics":    "failure policy delivered, name Acme Robotics, price book standard, time zone Asia/Kolkata",
		"member.add kim@acme.example": "email kim@acme.example, role viewer",
		"cap.set Acme Robotics":       "cap per month $1.00",
	} {
		if e, ok := said[key]; !ok || e.Change != change {
			t.Errorf("%s says %q, want %q (found: %v)", key, e.Change, change, ok)
		}
	}
	if e := said["key.create key ci-nightly"]; e.Actor != "dana@acme.example" {
		t.Errorf("who made ci's key: %+v", e)
	}
	if e := said["org.create Acme Robotics"]; e.Actor != "Millrace" {
		t.Errorf("who made the organization: %+v", e)
	}
	for range 60 {
		_, err := s.keys.Update(t.Context(), s.root, s.acme.ID, s.bot.ID, keysChange("bot "+ids.New().String()))
		s.must(err)
	}
	seen, pagesRead := 0, 0
	for after := ""; ; pagesRead++ {
		page, err := s.site.Customer.Audit(ctx, who, after)
		s.must(err)
		seen += len(page.Entries)
		if after = page.Next; after == "" {
			break
		}
	}
	if want := len(list.Entries) + 60; seen != want || pagesRead != 1 {
		t.Errorf("%d entries on %d pages, want %d on 2", seen, pagesRead+1, want)
	}
	if _, err := s.site.Customer.Audit(s.as(s.viewing), s.viewer(s.viewing), ""); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a viewer's audit log: %v, want Forbidden", err)
	}
}
