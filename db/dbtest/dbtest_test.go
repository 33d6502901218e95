package dbtest

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/internal/ids"
)

func orgs(t *testing.T, d *db.DB, s db.Scope) (n int) {
	t.Helper()
	err := d.InTx(t.Context(), s, func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), "select count(*) from orgs").Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDatabasesAreApartAndRowsBelongToTheirOrganization(t *testing.T) {
	a, b := New(t), New(t)
	one, two := ids.New(), ids.New()
	err := a.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "insert into orgs (org_id, name) values ($1, 'one'), ($2, 'two')", one, two)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		d     *db.DB
		scope db.Scope
		want  int
	}{{"system", a, db.System(), 2}, {"own", a, db.Org(one), 1}, {"none", a, db.Org(ids.Nil), 0}, {"other database", b, db.System(), 0}} {
		if got := orgs(t, c.d, c.scope); got != c.want {
			t.Errorf("%s sees %d organizations, want %d", c.name, got, c.want)
		}
	}
	err = a.InTx(t.Context(), db.Org(one), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "insert into projects (org_id, id, name) values ($1, $2, 'stolen')", two, ids.New())
		return err
	})
	if err == nil {
		t.Error("wrote a row of another organization")
	}
}

func BenchmarkInTx(b *testing.B) {
	d, org := New(b), ids.New()
	for b.Loop() {
		err := d.InTx(b.Context(), db.Org(org), func(tx pgx.Tx) error {
			var n int
			return tx.QueryRow(b.Context(), "select 1").Scan(&n)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
