// Package dbtest gives a test its own migrated database on a real PostgreSQL, and its own NATS server.
//
// A cluster with the migrated template is made once per version of the schema and kept in the user's cache folder. Each
// test process copies it to a temporary folder and runs its own server there; each database is cloned from the template.
// The kernel stops the server when the test process dies, however it dies; folders left behind are removed by later runs.
package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/pg"
	"millrace/migrations"
)

const (
	startTimeout  = 2 * time.Minute
	createTimeout = 30 * time.Second
	poolSize      = 24
)

var (
	once    sync.Once
	server  *pg.Server
	failed  error
	counter atomic.Int64
)

// New is a fresh database with the whole schema and no rows, closed and dropped when the test ends.
func New(t testing.TB) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), URL(t), db.Options{MaxConns: poolSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// URL is the address of a fresh database, for tests that start processes or open several pools.
func URL(t testing.TB) string {
	t.Helper()
	once.Do(func() { server, failed = startServer() })
	if failed != nil {
		t.Fatalf("test database: %v", failed)
	}
	name := fmt.Sprintf("t%d", counter.Add(1))
	admin(t, "CREATE DATABASE "+name+" TEMPLATE "+pg.Role)
	t.Cleanup(func() { admin(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	return named(server.URL(), name)
}

// Clone copies a database as it is now; nothing may be connected to it. It is how tests keep a backup to restore.
func Clone(t testing.TB, fromURL string) string {
	t.Helper()
	u, err := url.Parse(fromURL)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("t%d", counter.Add(1))
	admin(t, "CREATE DATABASE "+name+" TEMPLATE "+strings.TrimPrefix(u.Path, "/"))
	t.Cleanup(func() { admin(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	return named(fromURL, name)
}

// Bus is a fresh NATS server of this process, with every write synced as in production, and a connection to it.
func Bus(t testing.TB) (*bus.Server, *bus.Bus) {
	t.Helper()
	s, err := bus.StartEmbedded(t.Context(), bus.EmbeddedConfig{Dir: t.TempDir(), SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b, err := bus.Connect(t.Context(), bus.Config{Server: s, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return s, b
}

func admin(t testing.TB, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), createTimeout) // also in cleanups, when t.Context has ended
	defer cancel()
	conn, err := pgx.Connect(ctx, named(server.URL(), "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatal(err)
	}
}

func named(raw, database string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err) // we made it
	}
	u.Path = "/" + database
	return u.String()
}

// startServer copies the prepared cluster to a temporary folder, which it locks for its life, and runs it.
func startServer() (*pg.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	prepared, err := prepare(ctx)
	if err != nil {
		return nil, err
	}
	sweep()
	dir, err := os.MkdirTemp("", "millrace-test-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // held until this process ends
		return nil, err
	}
	keepOpen = lock
	if out, err := exec.CommandContext(ctx, "cp", "-a", prepared, filepath.Join(dir, "pg")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy the prepared cluster: %w: %s", err, out)
	}
	return pg.Start(ctx, pg.Config{Dir: filepath.Join(dir, "pg"), Fast: true})
}

var keepOpen *os.File

// prepare makes the cluster with the migrated template, once per version of the schema on this machine.
func prepare(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	root := filepath.Join(cache, "millrace", "dbtest")
	if err := os.MkdirAll(root, 0o711); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	final := filepath.Join(root, schemaHash())
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	making, err := os.MkdirTemp("", "millrace-test-making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(making)
	if err := os.Chmod(making, 0o711); err != nil {
		return "", err
	}
	if err := migrated(ctx, filepath.Join(making, "pg")); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(making, "pg"), final+".making").CombinedOutput(); err != nil {
		return "", fmt.Errorf("keep the prepared cluster: %w: %s", err, out)
	}
	return final, os.Rename(final+".making", final)
}

func migrated(ctx context.Context, dir string) error {
	s, err := pg.Start(ctx, pg.Config{Dir: dir, Fast: true, InitSQL: []string{"ALTER ROLE " + pg.Role + " CREATEDB"}})
	if err != nil {
		return err
	}
	d, err := db.Open(ctx, s.URL(), db.Options{})
	if err == nil {
		err = d.Migrate(ctx)
		d.Close()
	}
	if stopErr := s.Stop(ctx); err == nil {
		err = stopErr
	}
	return err
}

func schemaHash() string {
	h := sha256.New()
	_ = fs.WalkDir(migrations.FS, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := migrations.FS.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// sweep removes folders of test processes that have died: their locks are free.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "millrace-test-*"))
	for _, dir := range dirs {
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			continue // still being made, or another user's
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		lock.Close()
	}
}
