package export

import (
	"context"

	"millrace/billing/month"
	"millrace/internal/ids"
)

// monthColumns are what an accounting month came to with one customer. Openings and closings of balances are not added up.
var monthColumns = func() []Column {
	out := []Column{{Name: "month", Type: Text, few: true}, {Name: "state", Type: Text, few: true}, {Name: "currency", Type: Text, few: true},
		{Name: "org_id", Type: Text, few: true}, {Name: "org_name", Type: Text, few: true}}
	for _, c := range month.Columns {
		out = append(out, Column{Name: c.Key + "_usd", Type: USD, sum: c.Sum})
	}
	return out
}()

// months reads the months that begin in the range, each by the order of customers. A closed one is as it was closed.
func (r *reader) months(ctx context.Context, each func(page) error) error {
	start := month.Of(r.in.From)
	if start.Before(r.in.From) {
		start = start.AddDate(0, 1, 0)
	}
	for ; start.Before(r.in.To) && !start.After(r.now); start = start.AddDate(0, 1, 0) {
		after := ids.Nil
		switch {
		case r.in.After.Day.After(start):
			continue
		case r.in.After.Day.Equal(start):
			after = r.in.After.Org
		}
		err := month.Pages(ctx, r.q, start, r.now, after, func(m month.Month, rows []month.Row, last ids.ID) error {
			if len(rows) == 0 {
				return nil
			}
			p := page{last: Cursor{Day: start, Org: last}}
			for i := range rows {
				p.rows = append(p.rows, monthCells(m, &rows[i]))
			}
			return each(p)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func monthCells(m month.Month, row *month.Row) []cell {
	b := []cell{text(m.Name()), text(string(m.State)), text(month.Currency), id(ids.Org, row.Org), text(row.Name)}
	for _, n := range row.Figures {
		b = append(b, amount(n))
	}
	return b
}
