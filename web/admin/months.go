package admin

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"millrace/billing/month"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

const monthsTop = Root + "/months"

func (p *pages) registerMonths(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	g.GET(monthsTop, in(p.months))
	g.GET(monthsTop+"/:month", in(p.month))
	g.GET(monthsTop+"/:month/close", in(p.closeForm))
	g.POST(monthsTop+"/:month/close", in(p.closeMonth))
	g.POST(monthsTop+"/:month/draft", in(p.draftMonth))
}

func monthPath(m month.Month) string { return monthsTop + "/" + m.Name() }

func monthTitle(m month.Month) string { return m.Start.Format("January 2006") }

// monthTag is a month's state: a word, a shape and a colour.
func monthTag(m month.Month) ui.Cell {
	tone := ui.Quiet
	switch m.State {
	case month.Frozen:
		tone = ui.Warn
	case month.Closed:
		tone = ui.Good
	}
	return ui.N(ui.Tag(tone, string(m.State)), string(m.State))
}

// monthText says what a month's state means for it.
func monthText(m month.Month) string {
	switch m.State {
	case month.Closed:
		return "closed by " + m.ClosedBy + " on " + m.ClosedAt.Format("2 Jan 2006")
	case month.Frozen:
		return "nothing joins it any more; it waits to be closed"
	}
	return "freezes on " + m.FreezesAt.Format("2 Jan 2006 15:04 UTC")
}

func (p *pages) months(c echo.Context) error {
	list, err := p.Read.Months(c.Request().Context())
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Months", Path: monthsTop, Lead: "Accounting months are UTC calendar months. A month freezes 48 hours after its end, and stays as it is once you close it."}
	return ui.Render(c, http.StatusOK, monthsPage(page, monthsGrid(list)))
}

func monthsGrid(list []month.Line) ui.Grid {
	g := ui.Grid{Caption: "Accounting months, newest first", Cards: true,
		Columns: []ui.Column{{Name: "Month"}, {Name: "State"}, {Name: "Revenue", Num: true}, {Name: "Cash in", Num: true}, {Name: "On account", Num: true}, {Name: "Breakage", Num: true}, {Name: "Note", Wrap: true}},
		Empty:   ui.Blank{Icon: "scale", Title: "No months yet", Text: "The first month begins with the first customer."}}
	for _, x := range list {
		f := x.Figures
		g.Rows = append(g.Rows, ui.Row{ui.L(monthPath(x.Month), monthTitle(x.Month)), monthTag(x.Month), ui.USD(f[month.Recognised]), ui.USD(f[month.CashCard] + f[month.CashHand]),
			ui.USD(f[month.OnAccount]), ui.USD(f[month.Breakage]), ui.T(monthText(x.Month))})
	}
	return g
}

// monthView is one month's page ready to draw.
type monthView struct {
	page    ui.Page
	form    *ui.Form
	report  month.Report
	reasons []month.Reason
	groups  []monthGroup
	orgs    ui.Grid
	csv     string
	export  string
}

// monthGroup is some columns under a heading.
type monthGroup struct {
	name string
	grid ui.Grid
}

func (p *pages) findMonth(c echo.Context) (month.Report, []month.Reason, error) {
	start, err := month.Parse(c.Param("month"))
	if err != nil {
		return month.Report{}, nil, notThere(err)
	}
	return p.Read.Month(c.Request().Context(), start)
}

func (p *pages) month(c echo.Context) error { return p.showMonth(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showMonth(c echo.Context, status int, f *ui.Form) error {
	r, reasons, err := p.findMonth(c)
	if err != nil {
		return err
	}
	orgs := monthOrgs(r)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "month-"+r.Name(), orgs)
	}
	v := monthView{form: f, report: r, reasons: reasons, orgs: orgs, csv: report.AddressOf(c).With("format", "csv"), export: Root + "/revenue/export?kind=months&month=" + r.Name(),
		page: ui.Page{Title: monthTitle(r.Month), Path: monthsTop, Up: &ui.Link{Href: monthsTop, Text: "Months"}, Lead: "Accounting month, UTC · " + monthText(r.Month)}}
	if c.QueryParam("done") == "closed" {
		v.page.Toast = "Closed. Its figures are kept as they are."
	}
	if n, err := strconv.Atoi(c.QueryParam("drafted")); err == nil && n >= 0 {
		v.page.Toast = ui.Plural(int64(n), "invoice", "invoices") + " drafted. What adds up becomes final within a minute or two."
	}
	for _, name := range month.Groups {
		v.groups = append(v.groups, monthGroup{name, figuresGrid(name, &r.Total)})
	}
	return ui.Render(c, status, monthPage(v))
}

// figuresGrid lists the columns of a group, the last of them (a closing, or a sum) as the foot.
func figuresGrid(group string, f *month.Figures) ui.Grid {
	g := ui.Grid{Caption: group, Columns: []ui.Column{{Name: "What", Wrap: true}, {Name: month.Currency, Num: true}}}
	for c, info := range month.Columns {
		if info.Group == group {
			g.Rows = append(g.Rows, ui.Row{ui.T(info.Title), ui.USD(f[c])})
		}
	}
	if group != month.Costs {
		last := len(g.Rows) - 1
		g.Foot, g.Rows = g.Rows[last], g.Rows[:last]
	}
	return g
}

// orgColumns are what the list of customers shows of each.
var orgColumns = []struct {
	name   string
	column month.Column
}{{"Revenue", month.Recognised}, {"Breakage", month.Breakage}, {"Cash", month.CashChange}, {"Tax", month.Tax}, {"Deferred", month.DeferredClosing},
	{"Receivable", month.ReceivableClosing}, {"Promo left", month.PromoClosing}}

func monthOrgs(r month.Report) ui.Grid {
	g := ui.Grid{Caption: "By customer", Cards: true, Columns: []ui.Column{{Name: "Customer"}},
		Empty: ui.Blank{Icon: "building-2", Title: "Nothing in this month", Text: "Customers whose accounts moved, or who have a balance, are listed here."}}
	for _, c := range orgColumns {
		g.Columns = append(g.Columns, ui.Column{Name: c.name, Num: true})
	}
	line := func(head ui.Cell, f *month.Figures) ui.Row {
		row := ui.Row{head}
		for _, c := range orgColumns {
			row = append(row, ui.USD(f[c.column]))
		}
		return row
	}
	for i := range r.Rows {
		g.Rows = append(g.Rows, line(ui.L(customerPath(r.Rows[i].Org), r.Rows[i].Name), &r.Rows[i].Figures))
	}
	if len(g.Rows) > 0 {
		g.Foot = line(ui.T("Total"), &r.Total)
	}
	return g
}

func (p *pages) closeForm(c echo.Context) error { return p.showClose(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showClose(c echo.Context, status int, f *ui.Form) error {
	r, reasons, err := p.findMonth(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Close " + monthTitle(r.Month), Path: monthsTop, Up: &ui.Link{Href: monthPath(r.Month), Text: monthTitle(r.Month)}}
	return ui.Render(c, status, closePage(page, r, reasons, f))
}

func (p *pages) closeMonth(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	start, err := month.Parse(c.Param("month"))
	if err != nil {
		return notThere(err)
	}
	if err := p.Write.CloseMonth(c.Request().Context(), session.Must(c), start, f.Get("confirm")); err != nil {
		if !f.Absorb(err) {
			return err
		}
		return p.showClose(c, http.StatusUnprocessableEntity, f)
	}
	return c.Redirect(http.StatusSeeOther, monthsTop+"/"+c.Param("month")+"?done=closed")
}

// draftMonth has the invoices of a frozen month drafted again: of who owes something and has none that is final.
func (p *pages) draftMonth(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	start, err := month.Parse(c.Param("month"))
	if err != nil {
		return notThere(err)
	}
	made, err := p.Write.DraftMonth(c.Request().Context(), session.Must(c), start)
	if err != nil {
		if !f.Absorb(err) {
			return err
		}
		return p.showMonth(c, http.StatusUnprocessableEntity, f)
	}
	return c.Redirect(http.StatusSeeOther, monthsTop+"/"+c.Param("month")+"?drafted="+strconv.Itoa(made))
}

// reasonPath is where a reason can be looked at.
func reasonPath(code string) string {
	switch code {
	case month.InvoicesToMake, month.InvoicesDraft:
		return Root + "/invoices"
	case month.Quarantined:
		return exceptionsTop
	case month.NotReconciled, month.NotClean:
		return Root + "/reconcile"
	case month.EarlierOpen:
		return monthsTop
	}
	return ""
}
