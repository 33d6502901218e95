package tenants_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/secret"
)

func (f *fixture) operator(email string) tenants.User {
	f.t.Helper()
	u, err := f.EnsureOperator(f.t.Context(), f.root, email)
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

func (f *fixture) signIn(email string) (cookie string, s tenants.Session) {
	f.t.Helper()
	cookie, s, err := f.SignIn(f.t.Context(), f.link(email, tenants.LinkTTL), "192.0.2.7", "req_1")
	if err != nil {
		f.t.Fatal(err)
	}
	return cookie, s
}

func TestALinkWorksExactlyOnce(t *testing.T) {
	f := setup(t)
	f.operator("ann@example.com")
	token := f.link("ann@example.com", tenants.LinkTTL)
	var wg sync.WaitGroup
	var in atomic.Int64
	for range 16 {
		wg.Go(func() {
			_, _, err := f.SignIn(t.Context(), token, "", "")
			switch {
			case err == nil:
				in.Add(1)
			case !fault.Is(err, fault.Unauthenticated):
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if in.Load() != 1 {
		t.Fatalf("signed in %d times", in.Load())
	}
}

func TestLinksExpire(t *testing.T) {
	f := setup(t)
	f.operator("ann@example.com")
	for _, ttl := range []time.Duration{tenants.LinkTTL, tenants.MaxLinkTTL} {
		token := f.link("ann@example.com", ttl)
		f.clock.Advance(ttl)
		_, _, err := f.SignIn(t.Context(), token, "", "")
		wantKind(t, err, fault.Unauthenticated)
	}
	_, err := f.CreateLink(t.Context(), f.root, "ann@example.com", tenants.MaxLinkTTL+1)
	wantKind(t, err, fault.Invalid)
	_, err = f.CreateLink(t.Context(), f.root, "nobody@example.com", tenants.LinkTTL)
	wantKind(t, err, fault.NotFound)
	_, _, err = f.SignIn(t.Context(), secret.New(secret.LoginLink), "", "")
	wantKind(t, err, fault.Unauthenticated)
}

func TestLinkStates(t *testing.T) {
	f := setup(t)
	u := f.operator("ann@example.com")
	used, waiting := f.link("ann@example.com", tenants.LinkTTL), f.link("ann@example.com", tenants.LinkTTL)
	if _, _, err := f.SignIn(t.Context(), used, "", ""); err != nil {
		t.Fatal(err)
	}
	expires := f.clock.Now().Add(tenants.LinkTTL)
	states, err := f.LinkStates(t.Context(), f.root, []string{used, waiting, secret.New(secret.LoginLink), ""})
	if err != nil || len(states) != 2 || !states[used].Used || states[waiting].Used || !states[waiting].Expires.Equal(expires) {
		t.Errorf("states %+v, error %v", states, err)
	}
	_, err = f.LinkStates(t.Context(), tenants.Actor{User: u.ID}, []string{used})
	wantKind(t, err, fault.Forbidden)
}

// Asking for a link says nothing about whether the address is known, and cannot flood anybody.
func TestRequestLink(t *testing.T) {
	f := setup(t)
	f.operator("ann@example.com")
	for range 20 {
		for _, email := range []string{"ann@example.com", "nobody@example.com"} {
			if err := f.RequestLink(t.Context(), email); err != nil {
				t.Fatalf("%s: %v", email, err)
			}
		}
	}
	mails, err := f.Outbox(t.Context(), tenants.System(), ids.Nil, 0)
	if err != nil || len(mails) != 5 {
		t.Fatalf("%d mails, %v", len(mails), err)
	}
	// Another operator must not sign in as Ann: he would be the second operator for what he asks for.
	other := f.operator("bob@example.com")
	for _, who := range []tenants.Actor{{User: other.ID, Operator: true}, {Operator: true, Token: "a program"}} {
		if seen, err := f.Outbox(t.Context(), who, ids.Nil, 0); err != nil || len(seen) != 5 || !seen[0].Hidden || seen[0].Body != "" {
			t.Errorf("%+v sees %+v, %v", who, seen, err)
		}
	}
	for _, m := range mails {
		if m.Recipient != "ann@example.com" {
			t.Errorf("mail to %s", m.Recipient)
		}
	}
	_, body, _ := strings.Cut(mails[0].Body, linkBase)
	token, _, _ := strings.Cut(body, "\n")
	if _, _, err := f.SignIn(t.Context(), token, "", ""); err != nil {
		t.Errorf("the mailed link: %v", err)
	}
	f.clock.Advance(tenants.LinkTTL)
	if err := f.RequestLink(t.Context(), "ann@example.com"); err != nil {
		t.Error(err)
	}
	if mails, err := f.Outbox(t.Context(), f.root, ids.Nil, 0); err != nil || len(mails) != 6 {
		t.Errorf("%d mails a quarter of an hour later, %v", len(mails), err)
	}
}

func TestSessionsSlideAndEnd(t *testing.T) {
	f := setup(t)
	f.operator("ann@example.com")
	cookie, first := f.signIn("ann@example.com")
	if !first.User.Operator || first.Expires != f.clock.Now().Add(tenants.SessionIdle) {
		t.Errorf("session %+v", first)
	}
	// Used once a week it lives on, but not beyond SessionMax.
	for f.clock.Now().Add(7 * 24 * time.Hour).Before(first.Created.Add(tenants.SessionMax)) {
		f.clock.Advance(7 * 24 * time.Hour)
		s, err := f.Session(t.Context(), cookie)
		if err != nil || s.User.Email != "ann@example.com" || s.Expires.After(first.Created.Add(tenants.SessionMax)) {
			t.Fatalf("at %v: %+v, %v", f.clock.Now(), s, err)
		}
	}
	f.clock.Advance(7 * 24 * time.Hour)
	_, err := f.Session(t.Context(), cookie)
	wantKind(t, err, fault.Unauthenticated)

	idle, _ := f.signIn("ann@example.com")
	f.clock.Advance(tenants.SessionIdle)
	_, err = f.Session(t.Context(), idle)
	wantKind(t, err, fault.Unauthenticated)
	_, err = f.Session(t.Context(), "")
	wantKind(t, err, fault.Unauthenticated)
}

func TestSignOut(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	f.operator("ann@example.com")
	laptop, s := f.signIn("ann@example.com")
	phone, _ := f.signIn("ann@example.com")
	ann := tenants.Actor{User: s.User.ID}
	if all, err := f.Sessions(ctx, ann); err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	// Somebody else's attempt changes nothing.
	if err := f.EndSession(ctx, tenants.Actor{User: ids.New()}, s.ID); err != nil {
		t.Error(err)
	}
	if _, err := f.Session(ctx, laptop); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.EndSession(ctx, ann, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.Session(ctx, laptop)
	wantKind(t, err, fault.Unauthenticated)
	if _, err := f.Session(ctx, phone); err != nil {
		t.Error(err)
	}
}

func TestDisabledUsersAreOutAtOnce(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	u := f.operator("ann@example.com")
	cookie, _ := f.signIn("ann@example.com")
	token := f.link("ann@example.com", tenants.LinkTTL)
	for range 2 {
		if got, err := f.DisableUser(ctx, f.root, u.ID); err != nil || got.DisabledAt == nil {
			t.Fatal(got, err)
		}
	}
	_, err := f.Session(ctx, cookie)
	wantKind(t, err, fault.Unauthenticated)
	_, _, err = f.SignIn(ctx, token, "", "")
	wantKind(t, err, fault.Unauthenticated)
	_, err = f.CreateLink(ctx, f.root, "ann@example.com", tenants.LinkTTL)
	wantKind(t, err, fault.Conflict)
}

func TestOperators(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	ann := f.operator("ann@example.com")
	if again := f.operator("ann@example.com"); again != ann {
		t.Errorf("got %+v, want %+v", again, ann)
	}
	_, err := f.SetOperator(ctx, tenants.Actor{User: ann.ID, Operator: true}, ann.ID, false)
	wantKind(t, err, fault.Conflict)
	if u, err := f.SetOperator(ctx, f.root, ann.ID, false); err != nil || u.Operator {
		t.Error(u, err)
	}
	_, err = f.SetOperator(ctx, f.root, ids.New(), true)
	wantKind(t, err, fault.NotFound)
}

func TestControlTokens(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	bearer, err := f.CreateControlToken(ctx, f.root, "deploy")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.CreateControlToken(ctx, f.root, "deploy")
	wantKind(t, err, fault.Conflict)
	who, err := f.AuthenticateControl(ctx, bearer)
	if err != nil || who != (tenants.Actor{Operator: true, Token: "deploy"}) {
		t.Errorf("got %+v, %v", who, err)
	}
	for _, bad := range []string{"", bearer + "x", secret.New(secret.ControlToken), secret.New(secret.APIKey)} {
		_, err := f.AuthenticateControl(ctx, bad)
		wantKind(t, err, fault.Unauthenticated)
	}
	if err := f.RevokeControlToken(ctx, f.root, "deploy"); err != nil {
		t.Fatal(err)
	}
	_, err = f.AuthenticateControl(ctx, bearer)
	if got := fault.Of(err); got == nil || got.Code != "token_revoked" {
		t.Errorf("revoked: %v", err)
	}
	wantKind(t, f.RevokeControlToken(ctx, f.root, "deploy"), fault.NotFound)
	if _, err := f.CreateControlToken(ctx, f.root, "deploy"); err != nil {
		t.Errorf("the name is free again: %v", err)
	}
	if all, err := f.ControlTokens(ctx, f.root); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestSweepKeepsWhatIsAlive(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	f.operator("ann@example.com")
	cookie, _ := f.signIn("ann@example.com")
	if err := f.RequestLink(ctx, "ann@example.com"); err != nil {
		t.Fatal(err)
	}
	count := func() (links, sessions, mails int) {
		err := f.system(func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT (SELECT count(*) FROM login_links), (SELECT count(*) FROM sessions), (SELECT count(*) FROM outbox)").Scan(&links, &sessions, &mails)
		})
		if err != nil {
			t.Fatal(err)
		}
		return links, sessions, mails
	}
	if err := f.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if l, s, m := count(); l != 2 || s != 1 || m != 1 {
		t.Errorf("%d links, %d sessions, %d mails after an early sweep", l, s, m)
	}
	if _, err := f.Session(ctx, cookie); err != nil {
		t.Error(err)
	}
	f.clock.Advance(60 * 24 * time.Hour)
	if err := f.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if l, s, m := count(); l != 0 || s != 0 || m != 0 {
		t.Errorf("%d links, %d sessions, %d mails after a late sweep", l, s, m)
	}
}

// A program that could sign in as an operator would be the second operator whom it needs.
func TestATokenMakesNoLinksOfOperators(t *testing.T) {
	f := setup(t)
	f.operator("ann@example.com")
	token := tenants.Actor{Operator: true, Token: "deploy"}
	if _, err := f.CreateLink(t.Context(), token, "ann@example.com", tenants.LinkTTL); fault.Of(err).Code != "person_needed" {
		t.Errorf("%v", err)
	}
}

func TestATokenIsAdoptedOnce(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	ann := f.operator("ann@example.com")
	f.operator("bob@example.com")
	if _, err := f.CreateControlToken(ctx, tenants.System(), "demo"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, f.AdoptControlToken(ctx, tenants.Actor{Operator: true, Token: "demo"}, "demo", "ann@example.com"), fault.Forbidden)
	wantKind(t, f.AdoptControlToken(ctx, tenants.Actor{User: ann.ID}, "demo", "ann@example.com"), fault.Forbidden)
	for _, email := range []string{"ann@example.com", "bob@example.com"} {
		if err := f.AdoptControlToken(ctx, tenants.System(), "demo", email); err != nil {
			t.Error(err)
		}
		if all, err := f.ControlTokens(ctx, f.root); err != nil || len(all) != 1 || all[0].CreatedBy != ids.Format(ids.User, ann.ID) {
			t.Errorf("behind it: %+v, %v", all, err)
		}
	}
}

// What was handed out once is nowhere in the database.
func TestSecretsAreNotStored(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	f.operator("ann@example.com")
	link := f.link("ann@example.com", tenants.LinkTTL)
	cookie, _, err := f.SignIn(ctx, link, "", "")
	if err != nil {
		t.Fatal(err)
	}
	bearer, err := f.CreateControlToken(ctx, f.root, "deploy")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"login_links", "sessions", "control_tokens", "audit_log", "outbox", "users"} {
		var text string
		err := f.system(func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT coalesce(string_agg(r::text, ' '), '') FROM "+table+" r").Scan(&text)
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]string{"link": link, "cookie": cookie, "token": bearer} {
			if strings.Contains(text, s) {
				t.Errorf("%s holds the %s", table, name)
			}
		}
	}
}
