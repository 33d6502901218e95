package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/report"
	"millrace/web/ui"
)

// overviewView is the first page ready to draw.
type overviewView struct {
	Overview
	page   ui.Page
	title  string
	links  []ui.Segment
	groups []ui.Segment
	chart  ui.Bars
	empty  bool
	month  string
}

func (p *pages) overview(c echo.Context) error {
	ctx, now := c.Request().Context(), p.Clock.Now().UTC()
	o, err := p.Read.Overview(ctx)
	if err != nil {
		return err
	}
	s := report.SpanOf(func(string) string { return "" }, now)
	m, g := report.MetricOf(c.QueryParam("metric")), report.GroupOf(c.QueryParam("group"), report.ByModel, report.ByOrg)
	cells, err := p.Read.Usage(ctx, report.Query{From: s.From, To: s.To, Zone: time.UTC, Step: s.Step, Group: g})
	if err != nil {
		return err
	}
	rep, u := report.New(cells, s, g, m), report.AddressOf(c)
	title := m.Title()
	if m == report.Cost {
		title = "Revenue"
	}
	v := overviewView{
		Overview: o, title: title + ", last 30 days", links: m.Links(u), groups: report.GroupLinks(u, g, report.ByModel, report.ByOrg),
		chart: rep.Bars(m, title+", last 30 days"), empty: len(rep.Rows) == 0, month: now.Format("January"),
		page: ui.Page{Title: "Overview", Path: Root, Lead: "All customers and fleets · times in UTC", Events: []string{"usage", "hosts", "units", "ops"}},
	}
	return ui.Render(c, http.StatusOK, overviewPage(v))
}

func (o Overview) hourly(of func(HourPoint) int64) (names []string, values []int64) {
	for _, p := range o.Hours {
		names, values = append(names, p.Start.UTC().Format("15:04")), append(values, of(p))
	}
	return names, values
}

func hourRequests(p HourPoint) int64 { return p.Requests }
func hourTokens(p HourPoint) int64   { return p.Tokens }

// comparison says how the month stands against the one before.
func (o Overview) comparison() string {
	if o.LastMonth <= 0 {
		return "no revenue last month"
	}
	return ui.FormatMoney(o.LastMonth) + " in the whole of last month"
}

// checked says when the books were last compared.
func (r Reconciled) checked() string {
	if r.At.IsZero() {
		return "not compared yet: run millrace reconcile"
	}
	return "engines = events = ledger up to " + r.Watermark.UTC().Format("2 Jan 15:04 UTC")
}

// steps lead a new operator to a first sold token.
func (o Overview) steps() []ui.Step {
	return []ui.Step{
		{Name: "Serve a model", Text: "Join a host, or attach an engine that already runs.", Done: o.Serving > 0, Action: ui.Link{Href: Root + "/units/attach", Text: "Attach an engine"}},
		{Name: "Have a customer", Text: "Create the organization; its owner gets a sign-in link.", Done: o.Customers > 0, Action: ui.Link{Href: Root + "/customers/new", Text: "Create a customer"}},
		{Name: "Sell a first token", Text: "The customer creates a key and calls a model. It appears here by itself.", Done: o.Requests > 0 || o.Month > 0 || o.LastMonth > 0},
	}
}

func (o Overview) begun() bool {
	for _, s := range o.steps() {
		if !s.Done {
			return false
		}
	}
	return true
}

func ofText(part, whole int64) string {
	return strconv.FormatInt(part, 10) + " of " + strconv.FormatInt(whole, 10)
}

func (p *pages) revenue(c echo.Context) error {
	now := p.Clock.Now().UTC()
	month := report.Month(c, now)
	first := month.From
	rows, err := p.Read.Revenue(c.Request().Context(), month)
	if err != nil {
		return err
	}
	g := revenueGrid(rows)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "revenue-"+first.Format("2006-01"), g)
	}
	g = revenueGrid(foldRevenue(rows, revenueShown))
	u := report.AddressOf(c)
	page := ui.Page{Title: "Revenue", Path: Root + "/revenue", Lead: first.Format("January 2006") + " · settled usage · billing months are UTC calendar months"}
	months := report.Months(c, month, now)
	return ui.Render(c, http.StatusOK, revenuePage(page, months, g, u.With("format", "csv"), Root+"/revenue/export?month="+first.Format("2006-01"), totals(rows)))
}

// revenueShown is how many lines the page of revenue has room for; its CSV has all.
const revenueShown = 500

// foldRevenue keeps the lines that brought most, in their order, and adds the others up at the end.
func foldRevenue(rows []RevenueRow, most int) []RevenueRow {
	if len(rows) <= most {
		return rows
	}
	byRevenue := make([]int, len(rows))
	for i := range byRevenue {
		byRevenue[i] = i
	}
	slices.SortStableFunc(byRevenue, func(a, b int) int { return cmp.Compare(rows[b].Revenue, rows[a].Revenue) })
	kept := byRevenue[:most-1]
	slices.Sort(kept)
	out := make([]RevenueRow, 0, most)
	for _, i := range kept {
		out = append(out, rows[i])
	}
	var rest []RevenueRow
	for _, i := range byRevenue[most-1:] {
		rest = append(rest, rows[i])
	}
	others := totals(rest)
	others.OrgName = "All others"
	return append(out, others)
}

func totals(rows []RevenueRow) (sum RevenueRow) {
	for _, r := range rows {
		sum.Requests += r.Requests
		sum.Revenue += r.Revenue
		for i, n := range r.Usage {
			sum.Usage[i] += n
		}
	}
	return sum
}

func revenueGrid(rows []RevenueRow) ui.Grid {
	g := ui.Grid{
		Caption: "Revenue by customer and model", Cards: true,
		Columns: []ui.Column{{Name: "Customer"}, {Name: "Model"}, {Name: "Requests", Num: true}},
		Empty:   ui.Blank{Icon: "trending-up", Title: "No revenue in this month", Text: "Usage of customers is listed here as it is settled."},
	}
	sum := totals(rows)
	for _, c := range ui.PricedClasses {
		if isShown(sum, c) {
			g.Columns = append(g.Columns, ui.Column{Name: ui.ClassName(c), Num: true})
		}
	}
	g.Columns = append(g.Columns, ui.Column{Name: "Revenue", Num: true})
	line := func(r RevenueRow, head ...ui.Cell) ui.Row {
		row := append(ui.Row(head), ui.C(r.Requests))
		for _, c := range ui.PricedClasses {
			if isShown(sum, c) {
				row = append(row, ui.Tok(r.Usage[c]))
			}
		}
		return append(row, ui.USD(r.Revenue))
	}
	for _, r := range rows {
		who := ui.L(Root+"/customers/"+ids.Format(ids.Org, r.Org), r.OrgName)
		if r.Org == ids.Nil {
			who = ui.T(r.OrgName)
		}
		g.Rows = append(g.Rows, line(r, who, ui.T(r.Model)))
	}
	g.Foot = line(sum, ui.T("Total"), ui.Cell{})
	return g
}

// perMillion is what a million tokens brought in.
func perMillion(r RevenueRow) string {
	tokens := r.Usage.Tokens()
	const million = 1_000_000
	if tokens < million/1000 {
		return "–"
	}
	return ui.FormatMoney(r.Revenue / money.Nano(tokens/1000) * 1000)
}

// isShown keeps the columns of classes that nobody used out of the table; the request count has its own column.
func isShown(sum RevenueRow, c usage.Class) bool {
	switch c {
	case usage.Requests:
		return false
	case usage.Input, usage.Cached, usage.Output:
		return true
	}
	return sum.Usage[c] > 0
}
