package domain_test

import (
	"context"
	"testing"
	"time"

	"millrace/billing/credit"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/serving/catalogue"
	"millrace/tenants"
	"millrace/tenants/keys"
	"millrace/web/admin"
	"millrace/web/console"
	"millrace/web/session"
)

func (w *world) viewerOfNobody() session.Viewer { return session.Viewer{} }

func (w *world) modelWithoutPrice(name string) string {
	w.t.Helper()
	m, err := w.models.CreateModel(w.t.Context(), catalogue.ModelInput{Name: name, Context: 1000}, w.root)
	w.must(err)
	return m.Name
}

func grantOf(org ids.ID, amount, reason string) admin.Grant {
	n, err := money.ParseUSD(amount)
	if err != nil {
		panic(err) // the test's own constant
	}
	return admin.Grant{ID: ids.New(), Org: org, Amount: n, Reason: reason}
}

func keysChange(name string) keys.Change { return keys.Change{Name: &name} }

// authenticate asks what a gateway asks about a key.
func (w *world) authenticate(secret string) (keys.Principal, error) {
	w.t.Helper()
	gateway := keys.NewAuthenticator(keys.NewStore(w.db), w.master, w.clock, func() bool { return false })
	w.run(func(ctx context.Context) { _ = gateway.Run(ctx) })
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return gateway.Authenticate(ctx, secret)
}

func TestCreateKey(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	limit := usd(t, "3")
	form := console.NewKey{ID: ids.New(), Name: "nightly", Project: s.bots.ID, Cap: &limit, Expires: now.AddDate(0, 0, 2)}
	secret, err := s.site.Change.CreateKey(ctx, who, form)
	s.must(err)
	list, err := s.site.Customer.Keys(ctx, who)
	s.must(err)
	k := list[0]
	if len(list) != 3 || k.Name != "nightly" || k.Project != "bots" || k.Cap == nil || *k.Cap != limit || !k.Expires.Equal(now.AddDate(0, 0, 2)) || k.CreatedBy != "dana@acme.example" {
		t.Errorf("key %+v", k)
	}
	if secret[len(secret)-4:] != k.Last4 || k.ID == form.ID {
		t.Errorf("secret …%s of key …%s; a form does not choose its key's id", secret[len(secret)-4:], k.Last4)
	}
	if _, err := s.site.Change.CreateKey(ctx, who, form); !fault.Is(err, fault.Conflict) {
		t.Errorf("the form sent twice: %v, want Conflict", err)
	}
	if list, err = s.site.Customer.Keys(ctx, who); err != nil || len(list) != 3 {
		t.Errorf("%d keys after sending the form twice, error %v", len(list), err)
	}
	developer := who
	developer.Role = string(tenants.Developer)
	tooMuch := money.Nano(-1)
	for name, x := range map[string]struct {
		who   session.Viewer
		form  console.NewKey
		kind  fault.Kind
		param string
	}{
		"no name":                {who, console.NewKey{ID: ids.New(), Project: s.bots.ID}, fault.Invalid, "name"},
		"another's project":      {who, console.NewKey{ID: ids.New(), Name: "x", Project: s.theirs.Project}, fault.Invalid, "project"},
		"expired already":        {who, console.NewKey{ID: ids.New(), Name: "x", Project: s.bots.ID, Expires: now.Add(-time.Hour)}, fault.Invalid, "expires"},
		"a cap that cannot be":   {who, console.NewKey{ID: ids.New(), Name: "x", Project: s.bots.ID, Cap: &tooMuch}, fault.Invalid, "cap"},
		"a developer with a cap": {developer, console.NewKey{ID: ids.New(), Name: "x", Project: s.bots.ID, Cap: &limit}, fault.Invalid, "cap"},
		"a viewer":               {s.viewer(s.viewing), console.NewKey{ID: ids.New(), Name: "x", Project: s.bots.ID}, fault.Forbidden, ""},
	} {
		secret, err := s.site.Change.CreateKey(ctx, x.who, x.form)
		if !fault.Is(err, x.kind) || fault.Of(err).Param != x.param || secret != "" {
			t.Errorf("%s: %v (%q), secret %q; want %v on %q", name, err, fault.Of(err).Param, secret, x.kind, x.param)
		}
	}
	list, err = s.site.Customer.Keys(ctx, who)
	s.must(err)
	usable := 0
	for _, k := range list {
		if k.Revoked.IsZero() {
			usable++
		}
	}
	if usable != 3 {
		t.Errorf("%d usable keys, want 3: one whose cap was refused must not stay", usable)
	}
	if _, err := s.site.Change.CreateKey(ctx, developer, console.NewKey{ID: ids.New(), Name: "x", Project: s.bots.ID}); err != nil {
		t.Errorf("a developer without a cap: %v", err)
	}
}

func TestCaps(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	set := func(scope console.Scope, id ids.ID, n *money.Nano) {
		t.Helper()
		s.must(s.site.Change.SetCap(ctx, who, console.CapChange{Scope: scope, ID: id, Cap: n}))
	}
	two, three := usd(t, "2"), usd(t, "3")
	set(console.ScopeProject, s.bots.ID, &two)
	set(console.ScopeProject, s.bots.ID, &three)
	set(console.ScopeProject, s.bots.ID, &three) // twice
	set(console.ScopeOrg, s.acme.ID, nil)
	set(console.ScopeOrg, s.acme.ID, nil) // twice
	set(console.ScopeKey, s.bot.ID, nil)  // there is none
	l, err := s.site.Customer.Limits(ctx, who)
	s.must(err)
	if l.Cap != nil || l.Projects[0].Cap != nil || *l.Projects[1].Cap != three || l.Keys[0].Cap != nil || *l.Keys[1].Cap != usd(t, "0.5") {
		t.Errorf("limits %+v", l)
	}
	// The cap is what gateways obey: the bots' project has spent brokenBot of its December.
	caps, err := s.desk.Caps(t.Context(), s.root, s.acme.ID)
	s.must(err)
	for _, c := range caps {
		if c.Scope == credit.ProjectScope && (c.Settled != brokenBot || !c.Span.Start.Equal(monthIn(who.Zone).Start)) {
			t.Errorf("the project's cap counts %s since %v", c.Settled, c.Span.Start)
		}
	}
	negative := money.Nano(-1)
	err = s.site.Change.SetCap(ctx, who, console.CapChange{Scope: console.ScopeOrg, ID: s.acme.ID, Cap: &negative})
	if !fault.Is(err, fault.Invalid) || fault.Of(err).Param != "cap" {
		t.Errorf("a negative cap: %v", err)
	}
	for _, n := range []*money.Nano{&two, nil} {
		if err := s.site.Change.SetCap(ctx, s.viewer(s.viewing), console.CapChange{Scope: console.ScopeOrg, ID: s.acme.ID, Cap: n}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("a viewer sets %v: %v, want Forbidden", n, err)
		}
	}
}

func TestRevokeKey(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	for range 2 { // the second time is no error
		s.must(s.site.Change.RevokeKey(ctx, who, s.ci.ID))
	}
	k, err := s.site.Customer.Key(ctx, who, s.ci.ID)
	if err != nil || !k.Revoked.Equal(now) {
		t.Errorf("revoked at %v, error %v", k.Revoked, err)
	}
	if err := s.site.Change.RevokeKey(ctx, s.viewer(s.viewing), s.bot.ID); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a viewer revokes: %v, want Forbidden", err)
	}
}

func TestPlaygroundKey(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	secret, expires, err := s.site.Change.PlaygroundKey(ctx, who)
	s.must(err)
	if !expires.Equal(now.Add(keys.PlaygroundTTL)) {
		t.Errorf("it expires at %v", expires)
	}
	p, err := s.authenticate(secret)
	if err != nil || p.Org != s.acme.ID || p.Project != s.project.ID {
		t.Errorf("the gateway sees %+v, error %v", p, err)
	}
	if list, err := s.site.Customer.Keys(ctx, who); err != nil || len(list) != 2 {
		t.Errorf("%d keys are listed, error %v; the playground's are not", len(list), err)
	}
	if _, _, err := s.site.Change.PlaygroundKey(ctx, s.viewer(s.viewing)); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a viewer plays: %v, want Forbidden", err)
	}
}
