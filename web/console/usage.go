package console

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
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
	chart         ui.Bars
	title         string
	grid          ui.Grid
	empty         bool
	note          string
}

func (p *pages) usage(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	now := p.Clock.Now().In(who.Location())
	s, m, g := spanOf(c.QueryParam, now), metricOf(c.QueryParam("metric")), groupOf(c.QueryParam("group"))
	q := UsageQuery{From: s.from.UTC(), To: s.to.UTC(), Zone: who.Location(), Step: s.step, Group: g, Model: c.QueryParam("model")}
	if k := c.QueryParam("key"); k != "" {
		id, err := ids.Parse(ids.Key, k)
		if err != nil {
			return c.Redirect(http.StatusSeeOther, addressOf(c).with("key", ""))
		}
		q.Key = id
	}
	cells, err := p.Read.Usage(ctx, who, q)
	if err != nil {
		return err
	}
	rep, u := newReport(cells, s, g, m), addressOf(c)
	grid := rep.grid(firstColumn(g, s, who.Location()), func(r reportRow) ui.Cell { return narrow(u, g, s, r) })
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "usage-"+s.from.Format(dateLayout)+"-"+s.last().Format(dateLayout)+"-by-"+string(g), grid)
	}
	asOf, err := p.Read.UsageAsOf(ctx, who)
	if err != nil {
		return err
	}
	v := usageView{
		page:   ui.Page{Title: "Usage", Path: "/usage", Lead: s.title() + " · days begin at midnight in " + ui.ZoneName(who.Location(), now)},
		ranges: s.links(u), groups: g.links(u), metrics: m.links(u),
		from: s.from.Format(dateLayout), to: s.last().Format(dateLayout),
		csv: u.with("format", "csv"), chart: rep.bars(m, m.title()+" by "+string(g)+", "+s.title()),
		title: m.title() + ", " + s.title(), grid: grid, empty: len(rep.rows) == 0, note: asOfNote(asOf, now),
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

func groupOf(s string) GroupBy {
	switch g := GroupBy(s); g {
	case ByKey, ByDay:
		return g
	}
	return ByModel
}

func (g GroupBy) links(u address) []ui.Segment {
	return []ui.Segment{
		{Href: u.with("group", ""), Text: "By model", On: g == ByModel},
		{Href: u.with("group", "key"), Text: "By key", On: g == ByKey},
		{Href: u.with("group", "day"), Text: "By time", On: g == ByDay},
	}
}

func firstColumn(g GroupBy, s span, zone *time.Location) string {
	switch {
	case g == ByKey:
		return "Key"
	case g == ByModel:
		return "Model"
	case s.step == StepHour:
		return "Hour (" + zone.String() + ")"
	}
	return "Day (" + zone.String() + ")"
}

// narrow makes a row's name a link to that row alone.
func narrow(u address, g GroupBy, s span, r reportRow) ui.Cell {
	switch {
	case g == ByModel:
		return ui.L(u.with("model", r.group, "group", "key"), r.label)
	case g == ByKey:
		return ui.L(u.with("key", r.group, "group", "model"), r.label)
	case s.step == StepDay:
		c := ui.L(u.with("from", r.group, "to", r.group, "range", ""), r.label)
		c.CSV = r.group
		return c
	}
	c := ui.T(r.label)
	c.CSV = r.group + " " + r.label
	return c
}

// filterOf says in words what the page is narrowed to, and where the whole is.
func (p *pages) filterOf(c echo.Context, q UsageQuery, u address) (text, clear string, err error) {
	switch {
	case q.Model != "":
		return "model " + q.Model, u.with("model", "", "group", ""), nil
	case q.Key != ids.Nil:
		k, err := p.Read.Key(c.Request().Context(), session.Must(c), q.Key)
		return "key " + k.Name, u.with("key", "", "group", "key"), err
	}
	return "", "", nil
}

func asOfNote(asOf, now time.Time) string {
	if asOf.IsZero() {
		return "Requests appear within seconds of their end."
	}
	return "Complete up to " + ui.FormatAge(asOf, now) + ". Requests appear within seconds of their end."
}
