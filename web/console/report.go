package console

import (
	"slices"
	"strings"

	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// report is usage cells pivoted for a chart and a table.
type report struct {
	span  span
	group GroupBy
	rows  []reportRow // by falling value of the measure; by time when grouped by day
	total reportRow
}

// reportRow sums one group over the span.
type reportRow struct {
	group, label     string
	requests, errors int64
	usage            usage.Vector
	cost             money.Nano
	points           []UsageCell // one per bucket
}

func (r *reportRow) add(c UsageCell) {
	r.requests += c.Requests
	r.errors += c.Errors
	r.cost += c.Cost
	for i, n := range c.Usage {
		r.usage[i] += n
	}
}

func (r reportRow) cell() UsageCell {
	return UsageCell{Group: r.group, Label: r.label, Requests: r.requests, Errors: r.errors, Usage: r.usage, Cost: r.cost}
}

// newReport pivots cells. Cells outside the span are dropped: the domain never sends them.
func newReport(cells []UsageCell, s span, g GroupBy, m metric) report {
	starts := s.starts()
	at := make(map[int64]int, len(starts))
	for i, t := range starts {
		at[t.Unix()] = i
	}
	groups := map[string]*reportRow{}
	rep := report{span: s, group: g, total: reportRow{label: "Total", points: make([]UsageCell, len(starts))}}
	for _, c := range cells {
		i, ok := at[c.Bucket.Unix()]
		if !ok {
			continue
		}
		row := groups[c.Group]
		if row == nil {
			row = &reportRow{group: c.Group, label: c.Label, points: make([]UsageCell, len(starts))}
			groups[c.Group] = row
		}
		for _, r := range []*reportRow{row, &rep.total} {
			r.add(c)
			sum := reportRow{usage: r.points[i].Usage, requests: r.points[i].Requests, errors: r.points[i].Errors, cost: r.points[i].Cost}
			sum.add(c)
			r.points[i] = sum.cell()
		}
	}
	for _, row := range groups {
		rep.rows = append(rep.rows, *row)
	}
	slices.SortFunc(rep.rows, func(a, b reportRow) int {
		if d := m.of(b.cell()) - m.of(a.cell()); d != 0 {
			return sign(d)
		}
		return strings.Compare(a.label, b.label)
	})
	return rep
}

func sign(d int64) int {
	switch {
	case d < 0:
		return -1
	case d > 0:
		return 1
	}
	return 0
}

// bars is the report as a chart; groups beyond the colours are folded into "others".
func (r report) bars(m metric, label string) ui.Bars {
	b := ui.Bars{Label: label, Format: m.format}
	for _, t := range r.span.starts() {
		b.Buckets = append(b.Buckets, r.span.name(t))
	}
	series := func(row reportRow) ui.Series {
		s := ui.Series{Name: row.label, Values: make([]int64, len(b.Buckets))}
		for i, c := range row.points {
			s.Values[i] = m.of(c)
		}
		return s
	}
	if r.group == ByDay {
		total := series(r.total)
		total.Name = m.title()
		b.Series = []ui.Series{total}
		return b
	}
	for i, row := range r.rows {
		s := series(row)
		switch {
		case i < ui.MaxSeries:
			b.Series = append(b.Series, s)
			continue
		case i == ui.MaxSeries:
			b.Series[ui.MaxSeries-1].Name = "others"
		}
		for j, v := range s.Values {
			b.Series[ui.MaxSeries-1].Values[j] += v
		}
	}
	return b
}

// optional are the classes whose column appears only when something was used.
var optional = []usage.Class{usage.CacheWrite, usage.Reasoning, usage.Image, usage.Audio}

// classes are the token classes a table of this report shows.
func (r report) classes() []usage.Class {
	out := []usage.Class{usage.Input, usage.Cached}
	for _, c := range []usage.Class{usage.CacheWrite, usage.Image, usage.Audio, usage.Output, usage.Reasoning} {
		if !slices.Contains(optional, c) || r.total.usage[c] > 0 {
			out = append(out, c)
		}
	}
	return out
}

// grid is the report as a table with totals; first makes the first cell of a row.
func (r report) grid(firstColumn string, first func(reportRow) ui.Cell) ui.Grid {
	g := ui.Grid{
		Caption: "Usage, " + r.span.title(),
		Columns: []ui.Column{{Name: firstColumn}, {Name: "Requests", Num: true}, {Name: "Errors", Num: true}},
		Empty: ui.Blank{Icon: "chart-column", Title: "No usage in this range", Text: "Requests appear here within seconds of their end. Choose a longer range, or send a first request.",
			Action: ui.Link{Href: "/playground", Text: "Open the playground"}},
	}
	for _, c := range r.classes() {
		g.Columns = append(g.Columns, ui.Column{Name: ui.ClassName(c), Num: true})
	}
	g.Columns = append(g.Columns, ui.Column{Name: "Cost", Num: true})
	line := func(row reportRow, name ui.Cell) ui.Row {
		out := ui.Row{name, ui.C(row.requests), ui.C(row.errors)}
		for _, c := range r.classes() {
			out = append(out, ui.Tok(row.usage[c]))
		}
		return append(out, ui.USD(row.cost))
	}
	for _, row := range r.tableRows() {
		g.Rows = append(g.Rows, line(row, first(row)))
	}
	g.Foot = line(r.total, ui.T("Total"))
	return g
}

// tableRows are the groups, or the buckets with usage when grouped by day, newest first.
func (r report) tableRows() []reportRow {
	if r.group != ByDay {
		return r.rows
	}
	var out []reportRow
	starts := r.span.starts()
	for i := len(starts) - 1; i >= 0; i-- {
		c := r.total.points[i]
		if c.Requests == 0 && c.Cost == 0 {
			continue
		}
		out = append(out, reportRow{
			group: starts[i].Format(dateLayout), label: r.span.name(starts[i]),
			requests: c.Requests, errors: c.Errors, usage: c.Usage, cost: c.Cost,
		})
	}
	return out
}
