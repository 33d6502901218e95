// Package dbtest gives tests a real PostgreSQL database each, migrated and empty, and a NATS server each.
//
// It owns one server per user and machine, started by the first test that asks and shared by all packages of a `go test`
// run and by later runs; a database is a copy of a template, made in some tens of milliseconds and dropped at the test's
// end. It is for tests only: the server is fast because a power cut destroys it.
//
// Invariants: no two tests see the same database; any process may be killed at any time without hurting another; the
// server ends by itself some minutes after the last test process.
package dbtest

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"millrace/db"
	"millrace/db/bus"
)

const (
	// setupTimeout bounds what precedes a test: starting the server may include a download.
	setupTimeout = 5 * time.Minute
	// dropTimeout bounds the removal of a database; one that is left is swept later.
	dropTimeout = 30 * time.Second
	// testConns is the size of a test's pool: many packages share one server.
	testConns = 10
)

// New is a migrated, empty database. It is closed and dropped when the test ends.
func New(t testing.TB) *db.DB {
	t.Helper()
	return open(t, URL(t))
}

// URL is the address of a migrated, empty database, for the login role.
func URL(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	s := shared(ctx, t)
	template, err := s.template(ctx)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return s.create(ctx, t, template)
}

// Empty is the address of a database without any schema, for tests of migrations.
func Empty(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	return shared(ctx, t).create(ctx, t, "template0")
}

// Superuser is the same database as url, for a role that row-level security does not bind: to prove that the program
// refuses it, and to look behind the policies.
func Superuser(t testing.TB, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	super, err := shared(ctx, t).asSuperuser(url)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return super
}

// Bus is a connection to a fresh NATS server that keeps its log in the test's folder.
func Bus(t testing.TB) *bus.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	s, err := bus.StartEmbedded(ctx, bus.EmbeddedConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	t.Cleanup(s.Stop)
	b, err := bus.Connect(ctx, bus.Config{Server: s, Name: t.Name()})
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	t.Cleanup(b.Close)
	return b
}

func open(t testing.TB, url string) *db.DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	d, err := db.Open(ctx, url, db.Options{MaxConns: testConns})
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	t.Cleanup(d.Close)
	return d
}

// serial numbers the databases of this process.
var serial atomic.Int64

// create copies a template under a name that tells whose it is.
func (s *server) create(ctx context.Context, t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("t_%d_%d", os.Getpid(), serial.Add(1))
	// A process id comes round again: a killed process may have left a database of this name.
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name + " TEMPLATE " + template + " STRATEGY FILE_COPY"} {
		if _, err := s.admin.Exec(ctx, sql); err != nil {
			t.Fatalf("dbtest: %s: %v", sql, err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if _, err := s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Logf("dbtest: %s stays for now: %v", name, err)
		}
	})
	return s.address(name)
}

// shared is this process's use of the server; it lasts as long as the process.
func shared(ctx context.Context, t testing.TB) *server {
	t.Helper()
	s, err := attachOnce(ctx)
	if err != nil {
		t.Fatalf("dbtest: no PostgreSQL for the test: %v", err)
	}
	return s
}
