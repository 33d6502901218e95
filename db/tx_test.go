package db_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// in runs one transaction that must succeed.
func in(t testing.TB, d *db.DB, s db.Scope, fn func(tx pgx.Tx) error) {
	t.Helper()
	if err := d.InTx(context.Background(), s, fn); err != nil {
		t.Fatal(err)
	}
}

func count(t testing.TB, d *db.DB, s db.Scope, sql string, args ...any) (n int) {
	t.Helper()
	in(t, d, s, func(tx pgx.Tx) error { return tx.QueryRow(context.Background(), sql, args...).Scan(&n) })
	return n
}

func addOrg(t testing.TB, d *db.DB) ids.ID {
	t.Helper()
	org := ids.New()
	in(t, d, db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "INSERT INTO orgs (org_id, name) VALUES ($1, 'org')", org)
		if err == nil {
			_, err = tx.Exec(context.Background(), "INSERT INTO projects (org_id, id, name) VALUES ($1, $2, 'p')", org, ids.New())
		}
		return err
	})
	return org
}

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

func TestScopeDecidesWhatIsSeen(t *testing.T) {
	d := dbtest.New(t)
	a, b := addOrg(t, d), addOrg(t, d)
	for _, c := range []struct {
		name  string
		scope db.Scope
		want  int
	}{
		{"one organization", db.Org(a), 1},
		{"another", db.Org(b), 1},
		{"one without rows", db.Org(ids.New()), 0},
		{"none", db.Org(ids.Nil), 0},
		{"the system", db.System(), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, table := range []string{"orgs", "projects"} {
				if n := count(t, d, c.scope, "SELECT count(*) FROM "+table); n != c.want {
					t.Errorf("sees %d rows of %s, want %d", n, table, c.want)
				}
			}
		})
	}
}

func TestOrganizationCannotWriteForAnother(t *testing.T) {
	d := dbtest.New(t)
	a, b := addOrg(t, d), addOrg(t, d)
	const insufficientPrivilege = "42501"
	for name, sql := range map[string]string{
		"insert":     "INSERT INTO projects (org_id, id, name) VALUES ('" + b.String() + "', gen_random_uuid(), 'stolen')",
		"move":       "UPDATE projects SET org_id = '" + b.String() + "'",
		"no default": "INSERT INTO projects (org_id, id, name) VALUES (NULL, gen_random_uuid(), 'nobody')",
		"ddl":        "ALTER TABLE projects DISABLE ROW LEVEL SECURITY",
	} {
		err := d.InTx(t.Context(), db.Org(a), func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), sql); return err })
		if code := sqlState(err); code != insufficientPrivilege {
			t.Errorf("%s: %v, want SQLSTATE %s", name, err, insufficientPrivilege)
		}
	}
	if n := count(t, d, db.Org(b), "SELECT count(*) FROM projects"); n != 1 {
		t.Errorf("the other organization has %d projects, want its 1", n)
	}
}

// One connection serves all: nothing of a transaction's scope may stay on it.
func TestScopeEndsWithTheTransaction(t *testing.T) {
	d, err := db.Open(t.Context(), dbtest.URL(t), db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	a := addOrg(t, d)
	failed := errors.New("failed")
	for _, end := range []error{nil, failed} {
		if err := d.InTx(t.Context(), db.Org(a).Timeout(time.Hour), func(pgx.Tx) error { return end }); !errors.Is(err, end) {
			t.Fatalf("error %v, want %v", err, end)
		}
		if n := count(t, d, db.Org(ids.Nil), "SELECT count(*) FROM orgs"); n != 0 {
			t.Errorf("after a transaction of one organization, one of none sees %d rows", n)
		}
		var timeout string
		in(t, d, db.System(), func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), "SELECT current_setting('statement_timeout')").Scan(&timeout)
		})
		if timeout != "30s" {
			t.Errorf("statement_timeout is %s after the transaction, want the pool's 30s", timeout)
		}
	}
}

func TestSuperuserIsRefused(t *testing.T) {
	url := dbtest.Superuser(t, dbtest.URL(t))
	if _, err := db.Open(t.Context(), url, db.Options{}); err == nil || !strings.Contains(err.Error(), "superuser") {
		t.Errorf("error %v, want one that says why a superuser is refused", err)
	}
	d, err := db.Open(t.Context(), url, db.Options{AllowSuperuser: true})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

func TestErrorAndPanicRollBack(t *testing.T) {
	d := dbtest.New(t)
	insert := func(tx pgx.Tx) {
		if _, err := tx.Exec(t.Context(), "INSERT INTO orgs (org_id, name) VALUES ($1, 'x')", ids.New()); err != nil {
			t.Fatal(err)
		}
	}
	mine := errors.New("mine")
	if err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error { insert(tx); return mine }); err != mine {
		t.Errorf("error %v, want fn's own", err)
	}
	func() {
		defer func() {
			if recover() != "thrown" {
				t.Error("the panic did not come through")
			}
		}()
		_ = d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error { insert(tx); panic("thrown") })
	}()
	if n := count(t, d, db.System(), "SELECT count(*) FROM orgs"); n != 0 {
		t.Errorf("%d rows stayed", n)
	}
}

func TestCollisionsAreRunAgain(t *testing.T) {
	d := dbtest.New(t)
	a, b := addOrg(t, d), addOrg(t, d)
	add := func(tx pgx.Tx, org ids.ID) error {
		_, err := tx.Exec(t.Context(), "UPDATE orgs SET credit_limit_nano = credit_limit_nano + 1 WHERE org_id = $1", org)
		return err
	}
	var runs [2]int
	var meet sync.WaitGroup // the first attempts hold one row each before they ask for the other's: a deadlock
	meet.Add(2)
	var both sync.WaitGroup
	for i, order := range [][2]ids.ID{{a, b}, {b, a}} {
		both.Go(func() {
			err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
				runs[i]++
				if err := add(tx, order[0]); err != nil {
					return err
				}
				if runs[i] == 1 {
					meet.Done()
					meet.Wait()
				}
				return add(tx, order[1])
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if runs[0]+runs[1] < 3 { // more where the second run meets the other one again
		t.Errorf("%d runs in all, want at least 3: one transaction is run again", runs[0]+runs[1])
	}
	if n := count(t, d, db.System(), "SELECT sum(credit_limit_nano)::int FROM orgs"); n != 4 {
		t.Errorf("sum is %d, want 4: each transaction once", n)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	d := dbtest.New(t)
	runs := 0
	err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		runs++
		_, err := tx.Exec(t.Context(), "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = 'serialization_failure'; END $$")
		return err
	})
	if !db.Retryable(err) || runs != 5 {
		t.Errorf("%d runs, error %v; want 5 and the last collision", runs, err)
	}
}

func TestScopeOptions(t *testing.T) {
	d := dbtest.New(t)
	org := addOrg(t, d)
	const readOnly, cancelled = "25006", "57014"
	for _, c := range []struct {
		name  string
		scope db.Scope
		sql   string
		want  string // SQLSTATE
	}{
		{"read only", db.System().ReadOnly(), "UPDATE orgs SET name = 'x'", readOnly},
		{"read only organization", db.Org(org).ReadOnly(), "UPDATE projects SET name = 'x'", readOnly},
		{"timeout", db.System().Timeout(50 * time.Millisecond), "SELECT pg_sleep(60)", cancelled},
		{"timeout below a millisecond is not none", db.System().Timeout(time.Nanosecond), "SELECT pg_sleep(60)", cancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := d.InTx(t.Context(), c.scope, func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), c.sql); return err })
			if sqlState(err) != c.want {
				t.Errorf("error %v, want SQLSTATE %s", err, c.want)
			}
			if db.Away(err) {
				t.Error("says the database is away")
			}
		})
	}
	for scope, want := range map[string]db.Scope{
		"repeatable read|on|off": db.Org(org).Snapshot().ReadOnly().Relaxed(),
		"serializable|off|off":   db.System().Serializable().Relaxed(),
	} {
		var got string
		in(t, d, want, func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), `SELECT current_setting('transaction_isolation') || '|' ||
				current_setting('transaction_read_only') || '|' || current_setting('synchronous_commit')`).Scan(&got)
		})
		if got != scope {
			t.Errorf("transaction is %s, want %s", got, scope)
		}
	}
	if err := d.InTx(t.Context(), db.Scope{}, func(pgx.Tx) error { return nil }); err == nil {
		t.Error("a zero scope was accepted")
	}
}

// A cancelled caller stops the statement on the server and keeps the connection.
func TestCancelledContext(t *testing.T) {
	d, err := db.Open(t.Context(), dbtest.URL(t), db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	backend := func() int { return count(t, d, db.System(), "SELECT pg_backend_pid()") }
	before := backend()
	ctx, cancel := context.WithCancel(t.Context())
	err = d.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if after := backend(); after != before {
		t.Errorf("connection %d was replaced by %d", before, after)
	}
}

func TestDatabaseAway(t *testing.T) {
	url := dbtest.URL(t)
	d, err := db.Open(t.Context(), url, db.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cfg, err := pgx.ParseConfig(dbtest.Superuser(t, url))
	if err != nil {
		t.Fatal(err)
	}
	name := cfg.Database
	cfg.Database = "postgres"
	super, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close(context.Background())
	err = d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		if _, err := super.Exec(t.Context(), "SELECT pg_terminate_backend($1)", tx.Conn().PgConn().PID()); err != nil {
			t.Fatal(err)
		}
		_, err := tx.Exec(t.Context(), "SELECT 1")
		return err
	})
	if !db.Away(err) {
		t.Errorf("error of a terminated session %v, want Away", err)
	}
	if _, err := super.Exec(t.Context(), "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false"); err != nil {
		t.Fatal(err)
	}
	if _, err := super.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name); err != nil {
		t.Fatal(err)
	}
	err = d.InTx(t.Context(), db.System(), func(pgx.Tx) error { return nil })
	if !fault.Is(err, fault.Unavailable) || !db.Away(err) {
		t.Errorf("error without a server %v, want Unavailable", err)
	}
	if _, err := super.Exec(t.Context(), "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true"); err != nil {
		t.Fatal(err)
	}
	in(t, d, db.System(), func(pgx.Tx) error { return nil })
}
