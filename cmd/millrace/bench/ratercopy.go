package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
)

// copyLimit bounds one COPY, either way.
const copyLimit = 5 * time.Minute

// exportRows gives the newest n usage events as COPY writes them.
func exportRows(ctx context.Context, d *db.DB, n int) ([]byte, error) {
	var out bytes.Buffer
	err := d.InTx(ctx, db.System().ReadOnly().Timeout(copyLimit), func(tx pgx.Tx) error {
		out.Reset()
		tag, err := tx.Conn().PgConn().CopyTo(ctx, &out, fmt.Sprintf("COPY (SELECT * FROM usage_events ORDER BY id DESC LIMIT %d) TO STDOUT (FORMAT binary)", n))
		if err == nil && tag.RowsAffected() != int64(n) {
			err = fmt.Errorf("%d of %d rated events are in the table", tag.RowsAffected(), n)
		}
		return err
	})
	return out.Bytes(), err
}

// copyRows writes the rows into a table of their shape, and drops it.
func copyRows(ctx context.Context, url string, rows []byte, n int, indexes bool) (took time.Duration, spent cpuUse, err error) {
	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, spent, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	like := "INCLUDING DEFAULTS"
	if indexes {
		like += " INCLUDING INDEXES"
	}
	if _, err := conn.Exec(ctx, "CREATE TABLE bench_rows (LIKE usage_events "+like+")"); err != nil {
		return 0, spent, err
	}
	before, began := cpuOf(os.Getpid()), time.Now()
	tag, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(rows), "COPY bench_rows FROM STDIN (FORMAT binary)")
	took = time.Since(began)
	spent = cpuOf(os.Getpid()).sub(before) // while its server process is there to be asked
	if err != nil {
		return 0, spent, err
	}
	if tag.RowsAffected() != int64(n) {
		return 0, spent, fmt.Errorf("COPY wrote %d of %d rows", tag.RowsAffected(), n)
	}
	_, err = conn.Exec(ctx, "DROP TABLE bench_rows")
	return took, spent, err
}
