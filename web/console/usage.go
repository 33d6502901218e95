package console

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

// usageView is the usage page ready to draw.
type usageView struct {
	page          ui.Page
	ranges        []ui.Segment
	groups        []ui.Segment
	metrics       []ui.Segment
	from, to      string
	keep          [][2]string // hidden fields of the range form
	filter, clear string      // "model acme/llama-70b" and the link without it
	csv           string
	export        string // the page of downloads, for the same range
	chart         ui.Bars
	title         string
	grid          ui.Grid
	empty         bool
	note          string
}

var noUsage = ui.Blank{
	Icon: "chart-column", Title: "No usage in this range",
	Text:   "Requests appear here within seconds of their end. Choose a longer range, or send a first request.",
	Action: ui.Link{Href: "/playground", Text: "Open the playground"},
}

func (p *pages) usage(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	now := p.Clock.Now().In(who.Location())
	s, m, g := report.SpanOf(c.QueryParam, now), report.MetricOf(c.QueryParam("metric")), report.GroupOf(c.QueryParam("group"), report.ByModel, report.ByKey, report.ByDay)
	q := report.Query{From: s.From.UTC(), To: s.To.UTC(), Zone: who.Location(), Step: s.Step, Group: g, Model: c.QueryParam("model")}
	if k := c.QueryParam("key"); k != "" {
		id, err := ids.Parse(ids.Key, k)
		if err != nil {
			return c.Redirect(http.StatusSeeOther, report.AddressOf(c).With("key", ""))
		}
		q.Key = id
	}
	cells, err := p.Read.Usage(ctx, who, q)
	if err != nil {
		return err
	}
	rep, u := report.New(cells, s, g, m), report.AddressOf(c)
	grid := rep.Grid(firstColumn(g, s, who.Location()), func(r report.Row) ui.Cell { return narrow(u, g, s, r) }, noUsage)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "usage-"+s.From.Format(report.DateLayout)+"-"+s.Last().Format(report.DateLayout)+"-by-"+string(g), grid)
	}
	asOf, err := p.Read.UsageAsOf(ctx, who)
	if err != nil {
		return err
	}
	v := usageView{
		page:   ui.Page{Title: "Usage", Path: "/usage", Lead: s.Title() + " · days begin at midnight in " + ui.ZoneName(who.Location(), now)},
		ranges: s.Links(u), groups: report.GroupLinks(u, g, report.ByModel, report.ByKey, report.ByDay), metrics: m.Links(u),
		from: s.From.Format(report.DateLayout), to: s.Last().Format(report.DateLayout),
		csv: u.With("format", "csv"), export: "/usage/export?from=" + s.From.Format(report.DateLayout) + "&to=" + s.Last().Format(report.DateLayout), chart: rep.Bars(m, m.Title()+" by "+string(g)+", "+s.Title()),
		title: m.Title() + ", " + s.Title(), grid: grid, empty: len(rep.Rows) == 0, note: asOfNote(asOf, now),
	}
	if v.filter, v.clear, err = p.filterOf(c, q, u); err != nil {
		return err
	}
	for _, k := range []string{"group", "metric", "model", "key"} {
		if x := c.QueryParam(k); x != "" {
			v.keep = append(v.keep, [2]string{k, x})
		}
	}
	return ui.Render(c, http.StatusOK, usagePage(v))
}

func firstColumn(g report.GroupBy, s report.Span, zone *time.Location) string {
	switch {
	case g == report.ByKey:
		return "Key"
	case g == report.ByModel:
		return "Model"
	case s.Step == report.StepHour:
		return "Hour (" + zone.String() + ")"
	}
	return "Day (" + zone.String() + ")"
}

// narrow makes a row's name a link to that row alone.
func narrow(u report.Address, g report.GroupBy, s report.Span, r report.Row) ui.Cell {
	switch {
	case g == report.ByModel:
		return ui.L(u.With("model", r.Group, "group", "key"), r.Label)
	case g == report.ByKey:
		return ui.L(u.With("key", r.Group, "group", "model"), r.Label)
	case s.Step == report.StepDay:
		c := ui.L(u.With("from", r.Group, "to", r.Group, "range", ""), r.Label)
		c.CSV = r.Group
		return c
	}
	c := ui.T(r.Label)
	c.CSV = r.Group + " " + r.Label
	return c
}

// filterOf says in words what the page is narrowed to, and where the whole is.
func (p *pages) filterOf(c echo.Context, q report.Query, u report.Address) (text, clear string, err error) {
	switch {
	case q.Model != "":
		return "model " + q.Model, u.With("model", "", "group", ""), nil
	case q.Key != ids.Nil:
		k, err := p.Read.Key(c.Request().Context(), session.Must(c), q.Key)
		return "key " + k.Name, u.With("key", "", "group", "key"), err
	}
	return "", "", nil
}

func asOfNote(asOf, now time.Time) string {
	if asOf.IsZero() {
		return "Requests appear within seconds of their end."
	}
	return "Complete up to " + ui.FormatAge(asOf, now) + ". Requests appear within seconds of their end."
}
