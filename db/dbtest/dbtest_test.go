package dbtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/ids"
)

func TestDatabasesAreApart(t *testing.T) {
	for range 2 {
		d := dbtest.New(t)
		err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
			var n int
			if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM orgs").Scan(&n); err != nil {
				return err
			}
			if n != 0 {
				t.Errorf("a new database holds %d organizations", n)
			}
			_, err := tx.Exec(t.Context(), "INSERT INTO orgs (org_id, name) VALUES ($1, 'one')", ids.New())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDatabaseIsDropped(t *testing.T) {
	var url string
	t.Run("use", func(t *testing.T) { url = dbtest.URL(t) })
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		conn.Close(t.Context())
		t.Error("the database is still there after its test")
	}
}

func TestEmptyHasNoSchema(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), dbtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables, %v; want none", n, err)
	}
}

func TestBusIsFresh(t *testing.T) {
	for range 2 {
		b := dbtest.Bus(t)
		got := make(chan string, 1)
		stop, err := b.Subscribe("hello", func(_ string, data []byte) { got <- string(data) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if err := b.Publish("hello", []byte("you")); err != nil {
			t.Fatal(err)
		}
		select {
		case s := <-got:
			if s != "you" {
				t.Errorf("got %q", s)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("nothing came")
		}
		names := b.JetStream().StreamNames(t.Context())
		for name := range names.Name() {
			t.Errorf("stream %s in a fresh server", name)
		}
	}
}

// What a test pays for its database: copy and connect.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		dbtest.New(b)
	}
}
