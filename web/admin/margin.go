package admin

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/billing/margin"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

const (
	marginTop  = Root + "/margin"
	hoursOfDay = 24
)

// marginRanges are what the margin page offers, in hours.
var marginRanges = []struct {
	name, text string
	hours      int
}{{"24h", "24 hours", hoursOfDay}, {"7d", "7 days", 7 * hoursOfDay}, {"30d", "30 days", 30 * hoursOfDay}}

// marginView is the margin page ready to draw.
type marginView struct {
	page                       ui.Page
	ranges                     []ui.Segment
	sum                        marginSum
	models, orgs, steps, fleet ui.Grid
	unpriced                   []margin.Fleet
	empty                      bool
	note                       string
}

func (p *pages) margin(c echo.Context) error {
	ctx, now := c.Request().Context(), p.Clock.Now().UTC()
	u, which := report.AddressOf(c), marginRanges[0]
	for _, r := range marginRanges {
		if r.name == c.QueryParam("range") {
			which = r
		}
	}
	to := now.Truncate(time.Hour).Add(time.Hour)
	m, err := p.Read.Margin(ctx, to.Add(-time.Duration(which.hours)*time.Hour), to, which.hours <= hoursOfDay)
	if err != nil {
		return err
	}
	fleets, err := p.Read.Fleets(ctx)
	if err != nil {
		return err
	}
	v := marginView{sum: marginSum{m.Total}, models: modelMargins(m), orgs: orgMargins(m), steps: stepMargins(m, which.hours <= hoursOfDay), fleet: fleetGrid(fleets),
		empty: !m.From.Before(m.To), page: ui.Page{Title: "Margin", Path: marginTop, Lead: "Revenue beside what the GPUs cost · times in UTC", Events: []string{"usage", "hosts"}}}
	if c.QueryParam("done") == "price" {
		v.page.Toast = "Saved. The running hour is made anew with it."
	}
	for _, r := range marginRanges {
		v.ranges = append(v.ranges, ui.Segment{Href: u.With("range", r.name), Text: r.text, On: r == which})
	}
	for _, f := range fleets {
		if f.GPUHour == nil {
			v.unpriced = append(v.unpriced, f)
		}
	}
	if !v.empty {
		v.note = "Since " + m.From.Format("2 Jan 15:04 UTC") + ", from when on costs are known. The running hour counts up to now and is made anew every few minutes."
	}
	return ui.Render(c, http.StatusOK, marginPage(v))
}

// marginSum reads figures for people.
type marginSum struct{ margin.Figures }

func (s marginSum) left() money.Nano { return s.Revenue - s.Cost }

func perText(n money.Nano, ok bool) string {
	if !ok {
		return "–"
	}
	return ui.FormatMoney(n)
}

func (s marginSum) share() string {
	switch {
	case !s.Known():
		return "costs are not known"
	case s.Revenue <= 0:
		return "no revenue"
	case s.left() < 0:
		return ui.FormatMoney(s.Cost) + " of cost, " + ui.FormatMoney(s.Idle) + " of it idle"
	}
	return ui.FormatShare(int64(s.left()), int64(s.Revenue)) + " of revenue"
}

func permilleText(n int64, ok bool) string {
	if !ok {
		return "–"
	}
	return strconv.FormatInt((n+5)/10, 10) + "\u00a0%"
}

func (s marginSum) breakEven() string {
	n, ok := s.BreakEven()
	if !ok {
		return "break-even is not known"
	}
	if n > 1000 {
		return "break-even is above 100\u00a0%: the price does not carry the cost"
	}
	return "break-even at " + permilleText(n, true)
}

// cost is an amount that may be unknown.
func costCell(f margin.Figures, n money.Nano) ui.Cell {
	if !f.Known() {
		return ui.T("–")
	}
	return ui.USD(n)
}

func perCell(n money.Nano, ok bool) ui.Cell {
	if !ok {
		return ui.T("–")
	}
	return ui.USD(n)
}

func permilleCell(n int64, ok bool) ui.Cell {
	return ui.T(permilleText(n, ok))
}

func hoursCell(d time.Duration) ui.Cell {
	return ui.T(strconv.FormatFloat(d.Hours(), 'f', 1, 64))
}

func modelMargins(m margin.Report) ui.Grid {
	g := ui.Grid{Caption: "Margin by model", Cards: true, Columns: []ui.Column{{Name: "Model"}, {Name: "GPU-hours", Num: true}, {Name: "Busy", Num: true}, {Name: "Break-even", Num: true},
		{Name: "Revenue", Num: true}, {Name: "Cost", Num: true}, {Name: "Of it idle", Num: true}, {Name: "Margin", Num: true}, {Name: "Price per 1M", Num: true}, {Name: "Cost per 1M", Num: true}},
		Empty: ui.Blank{Icon: "trending-up", Title: "Nothing is accrued yet", Text: "Costs are laid on models hour by hour, a few minutes behind."}}
	for _, x := range m.Models {
		head := ui.T(x.Name)
		if x.ID == ids.Nil {
			head = ui.T("Hosts that serve nothing")
		}
		if x.Simulated {
			head = head.WithSub("simulated")
		}
		g.Rows = append(g.Rows, marginRow(head, x.Figures))
	}
	if len(g.Rows) > 0 {
		g.Foot = marginRow(ui.T("Total"), m.Total)
	}
	return g
}

func marginRow(head ui.Cell, f margin.Figures) ui.Row {
	return ui.Row{head, hoursCell(f.GPU), permilleCell(f.Utilisation()), permilleCell(f.BreakEven()), ui.USD(f.Revenue), costCell(f, f.Cost), costCell(f, f.Idle),
		costCell(f, f.Revenue-f.Cost), perCell(f.PricePerMillion()), perCell(f.CostPerMillion())}
}

func orgMargins(m margin.Report) ui.Grid {
	g := ui.Grid{Caption: "Margin by customer", Cards: true, Columns: []ui.Column{{Name: "Customer"}, {Name: "Tokens", Num: true}, {Name: "Revenue", Num: true},
		{Name: "Cost of its work", Num: true}, {Name: "Left for idle time and profit", Num: true}, {Name: "Price per 1M", Num: true}, {Name: "Cost per 1M", Num: true}},
		Empty: ui.Blank{Icon: "building-2", Title: "No customer used anything", Text: "Each customer bears the busy time of units by weighted tokens."}}
	for _, x := range m.Orgs {
		g.Rows = append(g.Rows, ui.Row{ui.L(customerPath(x.ID), x.Name), ui.Tok(x.Tokens), ui.USD(x.Revenue), costCell(x.Figures, x.Cost), costCell(x.Figures, x.Revenue-x.Cost),
			perCell(x.PricePerMillion()), perCell(x.CostPerMillion())})
	}
	return g
}

func stepMargins(m margin.Report, hourly bool) ui.Grid {
	name, layout := "Day", "2 Jan"
	if hourly {
		name, layout = "Hour", "2 Jan 15:04"
	}
	g := ui.Grid{Caption: "Margin by " + name, Cards: true, Columns: []ui.Column{{Name: name}, {Name: "GPU-hours", Num: true}, {Name: "Busy", Num: true}, {Name: "Break-even", Num: true},
		{Name: "Revenue", Num: true}, {Name: "Cost", Num: true}, {Name: "Of it idle", Num: true}, {Name: "Margin", Num: true}, {Name: "Price per 1M", Num: true}, {Name: "Cost per 1M", Num: true}},
		Empty: ui.Blank{Icon: "trending-up", Title: "Nothing is accrued yet", Text: "The running hour appears within minutes."}}
	for i := len(m.Steps) - 1; i >= 0; i-- { // newest first
		g.Rows = append(g.Rows, marginRow(ui.T(m.Steps[i].Start.Format(layout)), m.Steps[i].Figures))
	}
	return g
}

func fleetAddress(f margin.Fleet) string {
	return marginTop + "/price?" + url.Values{"provider": {f.Provider}, "region": {f.Region}, "kind": {f.Kind}}.Encode()
}

func fleetName(f margin.Fleet) string { return f.Provider + ", " + f.Region + ", " + kindName(f.Kind) }

func kindName(kind string) string {
	if kind == "on_demand" {
		return "on demand"
	}
	return kind
}

func fleetGrid(fleets []margin.Fleet) ui.Grid {
	g := ui.Grid{Caption: "Prices of GPU-hours", Cards: true, Columns: []ui.Column{{Name: "Fleet"}, {Name: "Hosts", Num: true}, {Name: "Per GPU-hour", Num: true}, {Name: "Actions", Hide: true}},
		Empty: ui.Blank{Icon: "server", Title: "No hosts", Text: "A fleet is the hosts of one provider, region and kind of capacity. Attached engines have no host, so their cost is not known."}}
	for _, f := range fleets {
		price, text := ui.T("not set"), "Set the price"
		if f.GPUHour != nil {
			price, text = ui.USD(*f.GPUHour), "Change the price"
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(fleetName(f)), ui.C(f.Hosts), price, ui.L(fleetAddress(f), text)})
	}
	return g
}

func (p *pages) gpuPriceForm(c echo.Context) error {
	return p.showGPUPrice(c, http.StatusOK, &ui.Form{}, fleetOf(c.QueryParam))
}

func fleetOf(get func(string) string) margin.Fleet {
	return margin.Fleet{Provider: get("provider"), Region: get("region"), Kind: get("kind")}
}

func (p *pages) showGPUPrice(c echo.Context, status int, f *ui.Form, fleet margin.Fleet) error {
	page := ui.Page{Title: "Price of a GPU-hour", Path: marginTop, Up: &ui.Link{Href: marginTop, Text: "Margin"}, Lead: fleetName(fleet)}
	return ui.Render(c, status, gpuPricePage(page, f, fleet))
}

func (p *pages) setGPUPrice(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	fleet := fleetOf(f.Get)
	n, err := money.ParseUSD(f.Get("price"))
	if err != nil || n < 0 {
		f.Fail("price", "Give dollars per GPU and hour, for example 2.10. What costs nothing is 0.")
	} else if err := p.Write.SetGPUPrice(c.Request().Context(), session.Must(c), fleet, n); err == nil {
		return c.Redirect(http.StatusSeeOther, marginTop+"?done=price")
	} else if !f.Absorb(err) {
		return err
	}
	return p.showGPUPrice(c, http.StatusUnprocessableEntity, f, fleet)
}
