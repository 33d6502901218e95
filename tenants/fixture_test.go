package tenants_test

import (
	"context"
	"strings"
	"sync"
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
	"millrace/tenants/audit"
)

const linkBase = "https://console.example/sign-in/"

// notices records what would go over the bus.
type notices struct {
	mu   sync.Mutex
	sent []string
}

func (n *notices) Publish(subject string, data []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, subject+" "+string(data))
	return nil
}

func (n *notices) has(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sent {
		if strings.Contains(s, what) {
			return true
		}
	}
	return false
}

type fixture struct {
	*tenants.Service
	t     *testing.T
	db    *db.DB
	clock *clock.Manual
	bus   *notices
	root  tenants.Actor // an operator
}

func setup(t *testing.T) *fixture {
	t.Helper()
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, db: dbtest.New(t), clock: clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)), bus: &notices{},
		root: tenants.Actor{Operator: true, Token: "test", IP: "192.0.2.1", RequestID: "req_test"}}
	f.Service = tenants.New(f.db, master, f.clock, f.bus, func(token string) string { return linkBase + token })
	return f
}

func (f *fixture) org(name string) tenants.Org {
	f.t.Helper()
	org, err := f.CreateOrg(f.t.Context(), f.root, tenants.NewOrg{Name: name})
	if err != nil {
		f.t.Fatal(err)
	}
	return org
}

// member adds a person and gives them as an actor.
func (f *fixture) member(org ids.ID, email string, role tenants.Role) tenants.Actor {
	f.t.Helper()
	m, err := f.AddMember(f.t.Context(), f.root, org, email, role)
	if err != nil {
		f.t.Fatal(err)
	}
	a, err := f.ActorIn(f.t.Context(), tenants.User{ID: m.User}, org)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}

// link makes a sign-in link and gives its token.
func (f *fixture) link(email string, ttl time.Duration) string {
	f.t.Helper()
	link, err := f.CreateLink(f.t.Context(), tenants.System(), email, ttl)
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimPrefix(link.URL, linkBase)
}

func (f *fixture) actions(org ids.ID) (actions []string) {
	f.t.Helper()
	entries, err := f.Audit(f.t.Context(), f.root, org, ids.Nil, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	return actions
}

func (f *fixture) lastAudit(org ids.ID) audit.Entry {
	f.t.Helper()
	entries, err := f.Audit(f.t.Context(), f.root, org, ids.Nil, 1)
	if err != nil || len(entries) != 1 {
		f.t.Fatal(entries, err)
	}
	return entries[0]
}

// system runs SQL as the system role: for what no function shows.
func (f *fixture) system(fn func(tx pgx.Tx) error) error {
	return f.db.InTx(context.Background(), db.System(), fn)
}

func wantKind(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("got %v, want a fault of kind %v", err, kind)
	}
}
