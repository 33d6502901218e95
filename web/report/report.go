package report

import (
	"cmp"
	"slices"
	"strings"

	"millrace/internal/usage"
	"millrace/web/ui"
)

// Report is usage cells pivoted for a chart and a table.
type Report struct {
	Span  Span
	Group GroupBy
	Rows  []Row // by falling value of the measure; by time when grouped by day
	Total Row
}

// Row sums one group over the span; as a Cell it has no bucket.
type Row struct {
	Cell
	points []Cell // one per bucket
}

func (c *Cell) add(d Cell) {
	c.Requests += d.Requests
	c.Errors += d.Errors
	c.Cost += d.Cost
	for i, n := range d.Usage {
		c.Usage[i] += n
	}
}

// New pivots cells. Cells outside the span are dropped: the domain never sends them.
func New(cells []Cell, s Span, g GroupBy, m Metric) Report {
	starts := s.Starts()
	at := make(map[int64]int, len(starts))
	for i, t := range starts {
		at[t.Unix()] = i
	}
	groups := map[string]*Row{}
	rep := Report{Span: s, Group: g, Total: Row{points: make([]Cell, len(starts))}}
	for _, c := range cells {
		i, ok := at[c.Bucket.Unix()]
		if !ok {
			continue
		}
		row := groups[c.Group]
		if row == nil {
			row = &Row{Cell: Cell{Group: c.Group, Label: c.Label}, points: make([]Cell, len(starts))}
			groups[c.Group] = row
		}
		for _, r := range []*Row{row, &rep.Total} {
			r.add(c)
			r.points[i].add(c)
		}
	}
	for _, row := range groups {
		rep.Rows = append(rep.Rows, *row)
	}
	slices.SortFunc(rep.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(m.Of(b.Cell), m.Of(a.Cell)), strings.Compare(a.Label, b.Label), strings.Compare(a.Group, b.Group))
	})
	return rep
}

// Bars is the report as a chart; groups beyond the colours are folded into "others".
func (r Report) Bars(m Metric, label string) ui.Bars {
	b := ui.Bars{Label: label, Format: m.Format}
	for _, t := range r.Span.Starts() {
		b.Buckets = append(b.Buckets, r.Span.Name(t))
	}
	series := func(row Row) ui.Series {
		s := ui.Series{Name: row.Label, Values: make([]int64, len(b.Buckets))}
		for i, c := range row.points {
			s.Values[i] = m.Of(c)
		}
		return s
	}
	if r.Group == ByDay {
		total := series(r.Total)
		total.Name = m.Title()
		b.Series = []ui.Series{total}
		return b
	}
	for i, row := range r.Rows {
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
func (r Report) classes() []usage.Class {
	out := []usage.Class{usage.Input, usage.Cached}
	for _, c := range []usage.Class{usage.CacheWrite, usage.Image, usage.Audio, usage.Output, usage.Reasoning} {
		if !slices.Contains(optional, c) || r.Total.Usage[c] > 0 {
			out = append(out, c)
		}
	}
	return out
}

// Grid is the report as a table with totals; first makes the first cell of a row, empty stands for a table without rows.
func (r Report) Grid(firstColumn string, first func(Row) ui.Cell, empty ui.Blank) ui.Grid {
	g := ui.Grid{
		Caption: "Usage, " + r.Span.Title(), Cards: true,
		Columns: []ui.Column{{Name: firstColumn}, {Name: "Requests", Num: true}, {Name: "Errors", Num: true}},
		Empty:   empty,
	}
	for _, c := range r.classes() {
		g.Columns = append(g.Columns, ui.Column{Name: ui.ClassName(c), Num: true})
	}
	g.Columns = append(g.Columns, ui.Column{Name: "Cost", Num: true})
	line := func(row Row, name ui.Cell) ui.Row {
		out := ui.Row{name, ui.C(row.Requests), ui.C(row.Errors)}
		for _, c := range r.classes() {
			out = append(out, ui.Tok(row.Usage[c]))
		}
		return append(out, ui.USD(row.Cost))
	}
	for _, row := range r.tableRows() {
		g.Rows = append(g.Rows, line(row, first(row)))
	}
	g.Foot = line(r.Total, ui.T("Total"))
	return g
}

// tableRows are the groups, or the buckets with usage when grouped by day, newest first.
func (r Report) tableRows() []Row {
	if r.Group != ByDay {
		return r.Rows
	}
	var out []Row
	starts := r.Span.Starts()
	for i := len(starts) - 1; i >= 0; i-- {
		c := r.Total.points[i]
		if c.Requests == 0 && c.Errors == 0 && c.Cost == 0 && c.Usage.Tokens() == 0 {
			continue
		}
		c.Group, c.Label = starts[i].Format(DateLayout), r.Span.Name(starts[i])
		out = append(out, Row{Cell: c})
	}
	return out
}
