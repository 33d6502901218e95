package domain_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/web/session"
)

func TestSigningInAndOut(t *testing.T) {
	w := newWorld(t)
	org, err := w.tenants.CreateOrg(t.Context(), w.root, tenants.NewOrg{Name: "Acme", TimeZone: "Asia/Kolkata", Owner: "dana@acme.example"})
	w.must(err)
	_, err = w.tenants.EnsureOperator(t.Context(), w.root, "ops@millrace.example")
	w.must(err)
	link, err := w.tenants.CreateLink(t.Context(), w.root, "dana@acme.example", tenants.LinkTTL)
	w.must(err)
	token := link.URL[len(publicURL+"/login/link?t="):]
	in, err := w.site.Auth.Exchange(t.Context(), token, session.Client{IP: "192.0.2.7"})
	w.must(err)
	if in.Operator || !in.Expires.Equal(w.clock.Now().Add(tenants.SessionMax)) {
		t.Errorf("session %+v", in)
	}
	for _, again := range []string{token, "nonsense", ""} {
		if _, err := w.site.Auth.Exchange(t.Context(), again, session.Client{}); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%q once more: %v, want Unauthenticated", again, err)
		}
	}
	v, err := w.site.Auth.Lookup(t.Context(), in.Secret)
	w.must(err)
	if v.Org != org.ID || v.OrgName != "Acme" || v.Role != "owner" || v.Operator || v.Zone.String() != "Asia/Kolkata" || !v.May.Has(session.PermKeys|session.PermCaps) || v.Email != "dana@acme.example" {
		t.Errorf("viewer %+v", v)
	}
	for role, want := range map[tenants.Role]session.Perm{tenants.Admin: session.PermKeys | session.PermCaps | session.PermBilling, tenants.Developer: session.PermKeys, tenants.Billing: session.PermCaps | session.PermBilling, tenants.Viewer: 0} {
		email := string(role) + "@acme.example"
		_, err := w.tenants.AddMember(t.Context(), w.root, org.ID, email, role)
		w.must(err)
		if v := w.viewer(w.signIn(email)); v.May != want || v.Role != string(role) {
			t.Errorf("a %s may %b, want %b", role, v.May, want)
		}
	}
	ops := w.viewer(w.signIn("ops@millrace.example"))
	if !ops.Operator || ops.Org != ids.Nil || ops.May != 0 {
		t.Errorf("an operator %+v", ops)
	}
	for range 2 { // the second time is no error
		w.must(w.site.Auth.SignOut(t.Context(), in.Secret))
	}
	if _, err := w.site.Auth.Lookup(t.Context(), in.Secret); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("signed out and still there: %v", err)
	}
}

// Of several organizations it is the first by name that is not suspended.
func TestMembersOfSeveral(t *testing.T) {
	w := newWorld(t)
	var orgs []tenants.Org
	for _, name := range []string{"Zebra", "Acme", "Bluefin"} {
		org, err := w.tenants.CreateOrg(t.Context(), w.root, tenants.NewOrg{Name: name, Owner: "dana@acme.example"})
		w.must(err)
		orgs = append(orgs, org)
	}
	cookie := w.signIn("dana@acme.example")
	expect := func(want string) {
		t.Helper()
		if v, err := w.site.Auth.Lookup(t.Context(), cookie); err != nil || v.OrgName != want {
			t.Errorf("acts for %q, error %v; want %q", v.OrgName, err, want)
		}
	}
	expect("Acme")
	_, err := w.tenants.SuspendOrg(t.Context(), w.root, orgs[1].ID)
	w.must(err)
	expect("Bluefin")
	for _, o := range []tenants.Org{orgs[0], orgs[2]} {
		_, err := w.tenants.SuspendOrg(t.Context(), w.root, o.ID)
		w.must(err)
	}
	expect("Acme") // a suspended customer still sees what it owes
}

// An operator who belongs to a customer acts there with the member's role, not with an operator's power.
func TestAnOperatorIsAMemberAmongMembers(t *testing.T) {
	w := newWorld(t)
	org, err := w.tenants.CreateOrg(t.Context(), w.root, tenants.NewOrg{Name: "Acme", Owner: "dana@acme.example"})
	w.must(err)
	_, err = w.tenants.EnsureOperator(t.Context(), w.root, "ops@millrace.example")
	w.must(err)
	_, err = w.tenants.AddMember(t.Context(), w.root, org.ID, "ops@millrace.example", tenants.Viewer)
	w.must(err)
	cookie := w.signIn("ops@millrace.example")
	if _, err := w.site.Customer.Billing(w.as(cookie), w.viewer(cookie), ""); !fault.Is(err, fault.Forbidden) {
		t.Errorf("as a viewer the operator reads billing: %v, want Forbidden", err)
	}
	if _, err := w.site.Business.Customer(w.as(cookie), org.ID); err != nil {
		t.Errorf("on the operator's pages: %v", err)
	}
}

func TestAskingForLinks(t *testing.T) {
	w := newWorld(t)
	_, err := w.tenants.EnsureOperator(t.Context(), w.root, "ops@millrace.example")
	w.must(err)
	ask := func(email, ip string) error {
		return w.site.Auth.RequestLink(t.Context(), email, session.Client{IP: ip})
	}
	w.must(ask("ops@millrace.example", "192.0.2.1"))
	w.must(ask("nobody@millrace.example", "192.0.2.1"))
	mails, err := w.tenants.Outbox(t.Context(), w.root, ids.Nil, 10)
	if err != nil || len(mails) != 1 || mails[0].Recipient != "ops@millrace.example" {
		t.Errorf("mails %+v, error %v", mails, err)
	}
	var refused atomic.Int64
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			err := ask("nobody@millrace.example", "192.0.2.2")
			if err == nil {
				return
			}
			refused.Add(1)
			if !fault.Is(err, fault.Limited) || fault.Of(err).RetryAfter != 15*time.Minute {
				t.Errorf("asked too often: %v, want Limited for a quarter of an hour", err)
			}
		})
	}
	all.Wait()
	if refused.Load() != 10 {
		t.Errorf("of 30 asked at once %d were refused, want 10", refused.Load())
	}
	w.must(ask("nobody@millrace.example", "192.0.2.3")) // others are not punished
	w.clock.Advance(15 * time.Minute)
	w.must(ask("nobody@millrace.example", "192.0.2.2"))
}
