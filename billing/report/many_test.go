package report_test

import (
	"testing"
	"time"

	"millrace/billing/report"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// As many customers as sum up to more cells than any answer holds: 5,000 with five models on each of three weeks.
const (
	manyCustomers = 5_000
	manyModels    = 5
	manyDays      = 21
)

// numbered is the id of customer n, or of model n.
func numbered(n int) ids.ID {
	return ids.ID{6: 0x40, 8: 0x80, 14: byte(n >> 8), 15: byte(n)}
}

// many makes them. Customer n pays n nano-dollars a day and model.
func (w *world) many(first time.Time) {
	w.t.Helper()
	id := `('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid`
	w.exec(`INSERT INTO orgs (org_id, name) SELECT `+id+`, 'Customer ' || n FROM generate_series(1, $1::int) n`, manyCustomers)
	w.exec(`INSERT INTO models (id, name, context_tokens, max_output_tokens) SELECT `+id+`, 'many/' || n, 1000, 1000 FROM generate_series(1, $1::int) n`, manyModels)
	w.exec(`INSERT INTO usage_rollups SELECT o.org_id, $1::timestamptz + d * interval '1 day', o.org_id, o.org_id, m.id, 1, 0, 10, 0, 0, 5, 0, 0, 0, ('x' || right(o.org_id::text, 8))::bit(32)::int, 0, 0, 0, 0, 0
		FROM orgs o, models m, generate_series(0, $2::int - 1) d WHERE o.name LIKE 'Customer %' AND m.name LIKE 'many/%'`, first, manyDays)
}

// Thousands of customers are added up by the database: pages of all, of some, and of one sum.
func TestThousandsOfCustomers(t *testing.T) {
	w := newWorld(t)
	first := now.Truncate(24*time.Hour).AddDate(0, 0, 1-manyDays)
	last := first.AddDate(0, 0, manyDays)
	w.many(first)
	const perDay = manyModels * manyCustomers * (manyCustomers + 1) / 2
	read := func(in report.Query) []report.Cell {
		t.Helper()
		in.From, in.To = first, last
		cells, err := w.Usage(t.Context(), w.root, in)
		if err != nil || len(cells) > report.MaxCells {
			t.Fatalf("%+v: %d cells, %v", in, len(cells), err)
		}
		return cells
	}
	sum := func(cells []report.Cell) money.Nano { return total(cells).Charged }

	if cells := read(report.Query{Step: report.StepDay}); len(cells) != manyDays || sum(cells) != manyDays*perDay {
		t.Errorf("all of them: %d cells, %d", len(cells), sum(cells))
	}
	if cells := read(report.Query{Step: report.StepDay, Group: report.ByModel}); len(cells) != manyDays*manyModels || sum(cells) != manyDays*perDay {
		t.Errorf("by model: %d cells, %d", len(cells), sum(cells))
	}
	cells := read(report.Query{Step: report.StepDay, Group: report.ByOrg})
	others := 0
	for _, c := range cells {
		switch c.Group {
		case ids.Nil:
			others++
			if c.Label != report.Others {
				t.Errorf("%+v", c)
			}
		default:
			if c.Charged < manyModels*(manyCustomers-report.MaxCells/manyDays) {
				t.Fatalf("%s is told apart: it paid %d", c.Label, c.Charged)
			}
		}
	}
	if others != manyDays || sum(cells) != manyDays*perDay || len(cells) != manyDays*(report.MaxCells/manyDays) {
		t.Errorf("by customer: %d cells, %d of others, %d", len(cells), others, sum(cells))
	}
	some := read(report.Query{Step: report.StepTotal, Group: report.ByOrg, Orgs: []ids.ID{numbered(7), numbered(4_999)}})
	if len(some) != 2 || some[0].Label != "Customer 7" || some[0].Charged != 7*manyModels*manyDays || some[1].Charged != 4_999*manyModels*manyDays || some[1].Requests != manyModels*manyDays {
		t.Errorf("two of them: %+v", some)
	}
	if none := read(report.Query{Step: report.StepTotal, Group: report.ByOrg, Orgs: []ids.ID{}}); len(none) != 0 {
		t.Errorf("none of them: %+v", none)
	}
	most := make([]ids.ID, manyCustomers-1) // more cells than are read at once, and not of everybody
	for i := range most {
		most[i] = numbered(i + 1)
	}
	if cells, err := w.Usage(t.Context(), w.root, report.Query{From: first, To: last, Step: report.StepDay, Group: report.ByOrg, Orgs: most}); !fault.Is(err, fault.Invalid) {
		t.Errorf("most of them: %d cells, %v, %v", len(cells), sum(cells), err)
	}
	if n, err := w.Active(t.Context(), w.root, first, last); err != nil || n != manyCustomers {
		t.Errorf("%d active, %v", n, err)
	}
	rows, err := w.Revenue(t.Context(), w.root, first, last)
	if err != nil || len(rows) != manyCustomers*manyModels || rows[0].Charged != rows[0].Charged/manyDays*manyDays {
		t.Errorf("revenue: %d rows, %v", len(rows), err)
	}
}
