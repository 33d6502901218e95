package db_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/dbtest"
)

func TestTwoProcessesMigrateAtOnce(t *testing.T) {
	url := dbtest.Empty(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			d, err := db.Open(t.Context(), url, db.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer d.Close()
			if err := d.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	d, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	addOrg(t, d)
}

func TestNewerSchemaIsRefused(t *testing.T) {
	url := dbtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999999, true)"); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("error %v, want one that asks for a newer program", err)
	}
}

// Every table with a customer's rows must be under forced row-level security, with both policies.
func TestTenantTablesAreForced(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), dbtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `SELECT c.relname::text FROM pg_class c
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id' AND a.attnotnull
		WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
		AND (NOT c.relrowsecurity OR NOT c.relforcerowsecurity
			OR NOT c.relispartition AND (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid) < 2)`)
	if err != nil {
		t.Fatal(err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(open) > 0 {
		t.Errorf("tenant tables without forced row-level security: %v", open)
	}
}
