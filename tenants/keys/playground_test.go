package keys_test

import (
	"testing"

	"millrace/db/bus"
	"millrace/tenants"
	"millrace/tenants/keys"
)

// live tells gateways, as the bus does, of what ends.
type live struct{ gateways []*keys.Authenticator }

func (l *live) Publish(subject string, data []byte) error {
	if subject == bus.NoticeKey {
		for _, g := range l.gateways {
			g.Invalidate(data)
		}
	}
	return nil
}

// Whoever signs out, is disabled or leaves the organization ends what the console's playground was given, at once, and
// nobody else's.
func TestAPlaygroundKeyEndsWithTheSignIn(t *testing.T) {
	notices := &live{}
	f := setup(t, notices)
	ctx := t.Context()
	gateway := f.gateway()
	notices.gateways = append(notices.gateways, gateway)
	ann, bob := f.member("ann@example.com"), f.member("bob@example.com")
	play := func(by tenants.Actor) string {
		t.Helper()
		_, text, err := f.keys.CreatePlayground(ctx, by, f.org.ID, f.project)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gateway.Authenticate(ctx, text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	others := play(bob)
	_, made, err := f.keys.Create(ctx, ann, keys.NewKey{Org: f.org.ID, Project: f.project, Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func() error{
		"signing out": func() error {
			sessions, err := f.tenants.Sessions(ctx, ann)
			if err != nil {
				return err
			}
			return f.tenants.EndSession(ctx, ann, sessions[0].ID)
		},
		"another role": func() error {
			return f.tenants.SetRole(ctx, f.root, f.org.ID, ann.User, tenants.Viewer)
		},
	} {
		if err := f.tenants.SetRole(ctx, f.root, f.org.ID, ann.User, tenants.Developer); err != nil {
			t.Fatal(err)
		}
		f.signIn("ann@example.com")
		text := play(ann)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if _, err := gateway.Authenticate(ctx, text); code(err) != "api_key_revoked" {
			t.Errorf("after %s: %v", name, err)
		}
	}
	for name, text := range map[string]string{"another person's playground": others, "a key that was made": made} {
		if _, err := gateway.Authenticate(ctx, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.tenants.RemoveMember(ctx, f.root, f.org.ID, bob.User); err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.Authenticate(ctx, others); code(err) != "api_key_revoked" {
		t.Errorf("after leaving the organization: %v", err)
	}
	cleo := f.member("cleo@example.com")
	text := play(cleo)
	if _, err := f.tenants.DisableUser(ctx, f.root, cleo.User); err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.Authenticate(ctx, text); code(err) != "api_key_revoked" {
		t.Errorf("after being disabled: %v", err)
	}
}

// member is a developer of the organization.
func (f *fixture) member(email string) tenants.Actor {
	f.t.Helper()
	m, err := f.tenants.AddMember(f.t.Context(), f.root, f.org.ID, email, tenants.Developer)
	if err != nil {
		f.t.Fatal(err)
	}
	return tenants.Actor{User: m.User, Org: f.org.ID, Role: tenants.Developer}
}

func (f *fixture) signIn(email string) {
	f.t.Helper()
	link, err := f.tenants.CreateLink(f.t.Context(), f.root, email, tenants.LinkTTL)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, _, err := f.tenants.SignIn(f.t.Context(), link.URL, "192.0.2.7", "req_1"); err != nil {
		f.t.Fatal(err)
	}
}
