package keys_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/tenants"
	"millrace/tenants/keys"
)

type silent struct{}

func (silent) Publish(string, []byte) error { return nil }

type fixture struct {
	t       *testing.T
	db      *db.DB
	master  *seal.Master
	clock   *clock.Manual
	tenants *tenants.Service
	keys    *keys.Service
	root    tenants.Actor
	org     tenants.Org
	project ids.ID
}

func setup(t *testing.T, notify tenants.Notifier) *fixture {
	t.Helper()
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, db: dbtest.New(t), master: master, clock: clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)),
		root: tenants.Actor{Operator: true, Token: "test"}}
	f.tenants = tenants.New(f.db, master, f.clock, notify, func(s string) string { return s })
	f.keys = keys.New(f.db, master, f.clock, notify)
	f.org, f.project = f.customer("Acme")
	return f
}

func (f *fixture) customer(name string) (tenants.Org, ids.ID) {
	f.t.Helper()
	org, err := f.tenants.CreateOrg(f.t.Context(), f.root, tenants.NewOrg{Name: name})
	if err != nil {
		f.t.Fatal(err)
	}
	projects, err := f.tenants.Projects(f.t.Context(), f.root, org.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	return org, projects[0].ID
}

func (f *fixture) key(in keys.NewKey) (keys.Key, string) {
	f.t.Helper()
	if in.Org == ids.Nil {
		in.Org, in.Project = f.org.ID, f.project
	}
	if in.Name == "" {
		in.Name = "key"
	}
	k, text, err := f.keys.Create(f.t.Context(), f.root, in)
	if err != nil {
		f.t.Fatal(err)
	}
	return k, text
}

// gateway runs an Authenticator on the fixture's database until the test ends.
func (f *fixture) gateway(change ...func(*keys.Authenticator)) *keys.Authenticator {
	f.t.Helper()
	a := keys.NewAuthenticator(keys.NewStore(f.db), f.master, f.clock, func() bool { return false })
	for _, c := range change {
		c(a)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = a.Run(ctx); close(ended) }()
	f.t.Cleanup(func() { cancel(); <-ended })
	return a
}

func code(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.Of(err).Code
}

func TestCreateListRevoke(t *testing.T) {
	f := setup(t, silent{})
	ctx := t.Context()
	expires := f.clock.Now().Add(time.Hour)
	k, text := f.key(keys.NewKey{Name: "ci", ExpiresAt: expires, Limits: keys.Limits{RPM: 60, TPM: 1e12, Concurrency: 4}})
	if !strings.HasPrefix(text, "mr_live_") || !strings.HasPrefix(text, k.Prefix) || !strings.HasSuffix(text, k.Last4) || k.Status(f.clock.Now()) != "active" {
		t.Errorf("key %+v, secret %q", k, text)
	}
	second, _ := f.key(keys.NewKey{Name: "web"})
	list, err := f.keys.Keys(ctx, f.root, f.org.ID, ids.Nil, ids.Nil, 0)
	if err != nil || len(list) != 2 || list[0].ID != second.ID || list[1].Name != "ci" || list[1].Limits != k.Limits || !list[1].ExpiresAt.Equal(expires) {
		t.Fatalf("list %+v, %v", list, err)
	}
	if older, err := f.keys.Keys(ctx, f.root, f.org.ID, f.project, second.ID, 1); err != nil || len(older) != 1 || older[0].ID != k.ID {
		t.Errorf("second page %+v, %v", older, err)
	}
	revoked, err := f.keys.Revoke(ctx, f.root, f.org.ID, k.ID)
	if err != nil || revoked.Status(f.clock.Now()) != "revoked" {
		t.Fatal(revoked, err)
	}
	f.clock.Advance(time.Minute)
	again, err := f.keys.Revoke(ctx, f.root, f.org.ID, k.ID)
	if err != nil || !again.RevokedAt.Equal(*revoked.RevokedAt) {
		t.Errorf("again: %+v, %v", again, err)
	}
	_, err = f.keys.Update(ctx, f.root, f.org.ID, k.ID, keys.Change{})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("changing a revoked key: %v", err)
	}
	_, err = f.keys.Revoke(ctx, f.root, f.org.ID, ids.New())
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestCreateRefuses(t *testing.T) {
	f := setup(t, silent{})
	other, otherProject := f.customer("Bolt")
	for name, tt := range map[string]struct {
		in   keys.NewKey
		kind fault.Kind
	}{
		"no name":                {keys.NewKey{Org: f.org.ID, Project: f.project}, fault.Invalid},
		"expired":                {keys.NewKey{Org: f.org.ID, Project: f.project, Name: "k", ExpiresAt: f.clock.Now()}, fault.Invalid},
		"the year 10000":         {keys.NewKey{Org: f.org.ID, Project: f.project, Name: "k", ExpiresAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*3600))}, fault.Invalid},
		"negative limit":         {keys.NewKey{Org: f.org.ID, Project: f.project, Name: "k", Limits: keys.Limits{RPM: -1}}, fault.Invalid},
		"limit too large":        {keys.NewKey{Org: f.org.ID, Project: f.project, Name: "k", Limits: keys.Limits{RPM: 1 << 40}}, fault.Invalid},
		"another org's project":  {keys.NewKey{Org: f.org.ID, Project: otherProject, Name: "k"}, fault.NotFound},
		"project of another org": {keys.NewKey{Org: other.ID, Project: f.project, Name: "k"}, fault.NotFound},
		"unknown org":            {keys.NewKey{Org: ids.New(), Project: f.project, Name: "k"}, fault.NotFound},
	} {
		if _, _, err := f.keys.Create(t.Context(), f.root, tt.in); !fault.Is(err, tt.kind) {
			t.Errorf("%s: got %v, want %v", name, err, tt.kind)
		}
	}
}

// A form that is sent twice makes one key, and its id is not the key's.
func TestAFormMakesOneKey(t *testing.T) {
	f := setup(t, silent{})
	form := ids.New()
	in := keys.NewKey{Org: f.org.ID, Project: f.project, Name: "ci", Form: form}
	k, _, err := f.keys.Create(t.Context(), f.root, in)
	if err != nil || k.ID == form || k.ID.Version() != 7 || ids.Time(k.ID) != ids.Time(form) {
		t.Fatalf("key %v of form %v, error %v", k.ID, form, err)
	}
	_, text, err := f.keys.Create(t.Context(), f.root, in)
	if !fault.Is(err, fault.Conflict) || code(err) != "form_sent" || text != "" {
		t.Errorf("the second time: %v", err)
	}
	other, project := f.customer("Bluefin")
	in.Org, in.Project = other.ID, project
	if k2, _, err := f.keys.Create(t.Context(), f.root, in); err != nil || k2.ID == k.ID {
		t.Errorf("another organization's form of the same id: %v, error %v", k2.ID, err)
	}
}

func TestUpdate(t *testing.T) {
	f := setup(t, silent{})
	k, _ := f.key(keys.NewKey{Limits: keys.Limits{RPM: 5}})
	mistyped := clock.Latest.Add(time.Second)
	if _, err := f.keys.Update(t.Context(), f.root, f.org.ID, k.ID, keys.Change{ExpiresAt: &mistyped}); !fault.Is(err, fault.Invalid) {
		t.Errorf("the year 2200: %v", err)
	}
	name, soon, never := "renamed", f.clock.Now().Add(time.Minute), time.Time{}
	got, err := f.keys.Update(t.Context(), f.root, f.org.ID, k.ID, keys.Change{Name: &name, ExpiresAt: &soon})
	if err != nil || got.Name != name || !got.ExpiresAt.Equal(soon) || got.Limits.RPM != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = f.keys.Update(t.Context(), f.root, f.org.ID, k.ID, keys.Change{ExpiresAt: &never, Limits: &keys.Limits{TPM: 9}})
	if err != nil || got.ExpiresAt != nil || got.Limits != (keys.Limits{TPM: 9}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestPlaygroundKeysAreHiddenAndShortLived(t *testing.T) {
	f := setup(t, silent{})
	a := f.gateway()
	k, text, err := f.keys.CreatePlayground(t.Context(), f.root, f.org.ID, f.project)
	if err != nil || !k.ExpiresAt.Equal(f.clock.Now().Add(keys.PlaygroundTTL)) {
		t.Fatal(k, err)
	}
	if list, err := f.keys.Keys(t.Context(), f.root, f.org.ID, ids.Nil, ids.Nil, 0); err != nil || len(list) != 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
	if _, err := a.Authenticate(t.Context(), text); err != nil {
		t.Error(err)
	}
	f.clock.Advance(keys.PlaygroundTTL)
	if _, err := a.Authenticate(t.Context(), text); code(err) != "api_key_expired" {
		t.Errorf("got %v", err)
	}
}

// Playgrounds take no room from an organization's keys, and have a bound of their own that time lifts.
func TestPlaygroundKeysAreCountedApart(t *testing.T) {
	f := setup(t, silent{})
	for range keys.MaxHidden {
		if _, _, err := f.keys.CreatePlayground(t.Context(), f.root, f.org.ID, f.project); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := f.keys.CreatePlayground(t.Context(), f.root, f.org.ID, f.project); code(err) != "too_many_messages" {
		t.Errorf("got %v", err)
	}
	f.key(keys.NewKey{})
	f.clock.Advance(keys.PlaygroundTTL)
	if _, _, err := f.keys.CreatePlayground(t.Context(), f.root, f.org.ID, f.project); err != nil {
		t.Error(err)
	}
}

func TestAuthenticateAgainstPostgres(t *testing.T) {
	f := setup(t, silent{})
	ctx := t.Context()
	k, text := f.key(keys.NewKey{Limits: keys.Limits{RPM: 60, TPM: 1000, Concurrency: 4}})
	got, err := f.gateway().Authenticate(ctx, text)
	want := keys.Principal{Org: f.org.ID, Project: f.project, Key: k.ID, PriceBook: "standard", TimeZone: "UTC", FailurePolicy: "delivered", RPM: 60, TPM: 1000, Concurrency: 4}
	if err != nil || keys.Bare(got) != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := f.tenants.CreateProject(ctx, f.root, f.org.ID, "Second"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { _, err := f.tenants.SuspendOrg(ctx, f.root, f.org.ID); return err }, "organization_suspended"},
		{func() error { _, err := f.tenants.RestoreOrg(ctx, f.root, f.org.ID); return err }, "ok"},
		{func() error { _, err := f.tenants.ArchiveProject(ctx, f.root, f.org.ID, f.project); return err }, "project_archived"},
		{func() error { _, err := f.keys.Revoke(ctx, f.root, f.org.ID, k.ID); return err }, "api_key_revoked"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		// A gateway that has just started: no cache between it and the database.
		if _, err := f.gateway().Authenticate(ctx, text); code(err) != step.want {
			t.Errorf("got %v, want %s", err, step.want)
		}
	}
}

// last_used_at is written once a minute, by whichever gateway.
func TestLastUse(t *testing.T) {
	f := setup(t, silent{})
	ctx := t.Context()
	k, _ := f.key(keys.NewKey{})
	store := keys.NewStore(f.db)
	first := f.clock.Now()
	for _, step := range []struct{ at, want time.Duration }{{0, 0}, {59 * time.Second, 0}, {60 * time.Second, 60 * time.Second}, {10 * time.Second, 60 * time.Second}} {
		if err := store.Touch(ctx, []keys.Use{{Org: f.org.ID, Key: k.ID, At: first.Add(step.at)}}); err != nil {
			t.Fatal(err)
		}
		got, err := f.keys.Key(ctx, f.root, f.org.ID, k.ID)
		if err != nil || got.LastUsedAt == nil || !got.LastUsedAt.Equal(first.Add(step.want)) {
			t.Errorf("after a use at +%v: %v, %v; want +%v", step.at, got.LastUsedAt, err, step.want)
		}
	}
}

func TestKeysAreNotStored(t *testing.T) {
	f := setup(t, silent{})
	_, text := f.key(keys.NewKey{})
	var stored string
	err := f.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `SELECT (SELECT string_agg(k::text, ' ') FROM api_keys k) || (SELECT string_agg(a::text, ' ') FROM audit_log a)`).Scan(&stored)
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(stored, text) || strings.Contains(stored, text[12:40]) {
		t.Error("the database holds the key")
	}
	if !strings.Contains(stored, "key.create") {
		t.Error("its making was not audited")
	}
}

func TestAccessMatrix(t *testing.T) {
	f := setup(t, silent{})
	ctx := t.Context()
	other, _ := f.customer("Bolt")
	k, _ := f.key(keys.NewKey{})
	actor := func(org ids.ID, role tenants.Role) tenants.Actor {
		return tenants.Actor{User: f.user(org, role), Org: org, Role: role}
	}
	name := "n"
	var table strings.Builder
	fmt.Fprintf(&table, "%-18s%-11s%-11s%-11s%s\n", "", "Keys", "Create", "Update", "Playground")
	row := func(label string, a tenants.Actor) {
		_, list := f.keys.Keys(ctx, a, f.org.ID, ids.Nil, ids.Nil, 0)
		_, _, create := f.keys.Create(ctx, a, keys.NewKey{Org: f.org.ID, Project: f.project, Name: "k"})
		_, change := f.keys.Update(ctx, a, f.org.ID, k.ID, keys.Change{Name: &name})
		_, _, play := f.keys.CreatePlayground(ctx, a, f.org.ID, f.project)
		line := fmt.Sprintf("%-18s", label)
		for _, err := range []error{list, create, change, play} {
			out := "ok"
			if err != nil {
				out = fault.Of(err).Kind.String()
			}
			line += fmt.Sprintf("%-11s", out)
		}
		table.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	row("operator", f.root)
	for _, r := range tenants.Roles {
		row(string(r), actor(f.org.ID, r))
	}
	row("foreign owner", actor(other.ID, tenants.Owner))
	row("nobody", tenants.Actor{})
	want, err := os.ReadFile("testdata/access.txt")
	if err != nil || string(want) != table.String() {
		t.Errorf("testdata/access.txt differs (%v):\n%s", err, table.String())
	}
}

func (f *fixture) user(org ids.ID, role tenants.Role) ids.ID {
	f.t.Helper()
	m, err := f.tenants.AddMember(f.t.Context(), f.root, org, string(role)+"@example.com", role)
	if err != nil {
		f.t.Fatal(err)
	}
	return m.User
}
