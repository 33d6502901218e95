package margin_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// A unit of several engines bears the GPUs of all of them, on every host; GPUs that nobody has are nobody's.
func TestUnitsBearTheGPUsThatTheyHave(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(8, false), w.host(8, false)
	w.clock.Advance(-time.Hour)
	if err := w.SetPrice(t.Context(), w.root, fleet, 2*money.NanoPerUSD); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Hour)
	parent, plan, prefill := ids.New(), ids.New(), ids.New()
	w.exec(`INSERT INTO plans (id, cause, body, demands, digest, state, created_by) VALUES ($1, 'operator', '{}', '[]', '', 'draft', 'x')`, plan)
	w.exec(`INSERT INTO units (id, name, model_id, engine, upstream_model, parts, plan_id, created_at) VALUES ($1, 'pair', $2, 'vllm', 'x', 2, $3, $4)`, parent, w.model, plan, now.AddDate(0, 0, -1))
	part := func(id, host ids.ID, role, gpus string) {
		w.exec(`INSERT INTO units (id, name, model_id, engine, host_id, upstream_model, part_of, role, gpus, plan_id, created_at)
			VALUES ($1::uuid, $1::uuid::text, $2, 'vllm', $3, 'x', $4, $5, $6::int[], $7, $8)`, id, w.model, host, parent, role, gpus, plan, now.AddDate(0, 0, -1))
	}
	decode := ids.New()
	part(prefill, one, "prefill", "{0,1}")
	part(decode, two, "decode", "{0,1,2,3}")
	last := now.Truncate(time.Hour).Add(-time.Hour)
	w.serve(w.orgs[0], decode, last, 30*time.Minute, 1000, 1000, 1)
	r := w.report()
	if r.Total.Cost != 48*money.NanoPerUSD { // 16 GPUs for an hour and a half
		t.Errorf("cost %s", r.Total.Cost)
	}
	got := map[ids.ID]int64{}
	err := w.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		rows, err := tx.Query(t.Context(), `SELECT unit_id, sum(gpu_ms)::bigint FROM margin_units WHERE hour = $1 GROUP BY 1`, last)
		if err != nil {
			return err
		}
		var id ids.ID
		var ms int64
		_, err = pgx.ForEachRow(rows, []any{&id, &ms}, func() error { got[id] = ms; return nil })
		return err
	})
	hours := func(n int64) int64 { return n * time.Hour.Milliseconds() }
	if err != nil || len(got) != 2 || got[parent] != hours(6) || got[ids.Nil] != hours(10) {
		t.Errorf("%v %v", got, err)
	}
	if len(r.Orgs) != 1 || r.Orgs[0].Cost != 6*money.NanoPerUSD { // six GPUs for half an hour
		t.Errorf("%+v", r.Orgs)
	}
}
