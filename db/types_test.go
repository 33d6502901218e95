package db_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/ids"
)

func TestTypesGoThroughUnchanged(t *testing.T) {
	d := dbtest.New(t)
	want := []ids.ID{ids.New(), ids.New()}
	when := time.Date(2026, 3, 29, 1, 30, 0, 123456000, time.UTC)
	in(t, d, db.System(), func(tx pgx.Tx) error {
		// The way bulk writes go: COPY is refused under row-level security, so into a table of the transaction's own.
		if _, err := tx.Exec(t.Context(), "CREATE TEMP TABLE staged (id uuid, maybe uuid, at timestamptz, day date) ON COMMIT DROP"); err != nil {
			return err
		}
		source := [][]any{{want[0], &want[1], when, when}, {want[1], nil, when, when}}
		if _, err := tx.CopyFrom(t.Context(), pgx.Identifier{"staged"}, []string{"id", "maybe", "at", "day"}, pgx.CopyFromRows(source)); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), "SELECT id, maybe, at, day FROM staged WHERE id = ANY($1) AND at = $2 ORDER BY id", want, when)
		if err != nil {
			return err
		}
		type row struct {
			ID    ids.ID
			Maybe *ids.ID
			At    time.Time
			Day   time.Time
		}
		got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil {
			return err
		}
		if len(got) != 2 || got[0].ID != want[0] || got[1].ID != want[1] || *got[0].Maybe != want[1] || got[1].Maybe != nil {
			t.Errorf("ids came back as %v, want %v", got, want)
		}
		for _, r := range got {
			if r.At != when || r.Day != when.Truncate(24*time.Hour) {
				t.Errorf("times came back as %v and %v, want %v in UTC", r.At, r.Day, when)
			}
		}
		return nil
	})
}

// sqlc has a parser of its own; the real server must agree with every query it passed.
func TestEveryQueryPrepares(t *testing.T) {
	d := dbtest.New(t)
	files, err := filepath.Glob("q/*.sql.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no generated queries: %v", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			sql, err := strconv.Unquote(lit.Value)
			if err != nil || !strings.HasPrefix(sql, "-- name: ") {
				return true
			}
			name := strings.Fields(sql)[2]
			err = d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
				_, err := tx.Prepare(t.Context(), name, sql)
				return err
			})
			if err != nil {
				t.Errorf("%s: %s: %v", file, name, err)
			}
			return true
		})
	}
}

// What a handler pays for the database at least: begin with role and organization, one statement, commit.
func BenchmarkInTx(b *testing.B) {
	d := dbtest.New(b)
	scope := db.Org(addOrg(b, d))
	for b.Loop() {
		var one int
		if err := d.InTx(b.Context(), scope, func(tx pgx.Tx) error {
			return tx.QueryRow(b.Context(), "SELECT 1").Scan(&one)
		}); err != nil {
			b.Fatal(err)
		}
	}
}
