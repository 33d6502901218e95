package admin

import (
	"fmt"
	"net/http"
	"net/mail"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

const (
	maxName      = 80                           // characters of a customer's name
	maxReason    = 300                          // characters of a reason
	maxGrant     = 1_000_000 * money.NanoPerUSD // above it a grant is a typing error
	largeGrant   = 1_000 * money.NanoPerUSD     // above it the customer's name must be typed
	defaultZone  = "UTC"
	customersTop = Root + "/customers"
)

func customerPath(id ids.ID) string { return customersTop + "/" + ids.Format(ids.Org, id) }

// marginCell is what the month brought less what serving it cost.
func marginCell(x Customer) ui.Cell {
	if x.Cost == nil {
		return ui.T("")
	}
	return ui.USD(x.Month - *x.Cost)
}

func (p *pages) customers(c echo.Context) error {
	after, search, u := c.QueryParam("after"), c.QueryParam("q"), report.AddressOf(c)
	list, err := p.Read.Customers(c.Request().Context(), search, after)
	if err != nil {
		return err
	}
	g := ui.Grid{
		Caption: "Customers", Cards: true,
		Columns: []ui.Column{{Name: "Customer"}, {Name: "Balance", Num: true}, {Name: "Revenue this month", Num: true}, {Name: "Margin this month", Num: true, Less: true}, {Name: "Requests this month", Num: true}, {Name: "Last request"}, {Name: "Since"}},
		Empty: ui.Blank{Icon: "building-2", Title: "No customers yet", Text: "A customer is an organization with members, keys and a balance of its own.",
			Action: ui.Link{Href: customersTop + "/new", Text: "Create a customer"}},
	}
	if search != "" {
		g.Empty = ui.Blank{Icon: "search", Title: "No customer matches", Text: "Search by a part of a name, an e-mail address or the beginning of a key.", Action: ui.Link{Href: customersTop, Text: "Show all"}}
	}
	for _, x := range list.Rows {
		g.Rows = append(g.Rows, ui.Row{ui.L(customerPath(x.ID), x.Name), ui.USD(x.Balance), ui.USD(x.Month), marginCell(x), ui.C(x.Requests), ui.Ago(x.LastRequest), ui.At(x.Created)})
	}
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "customers", g)
	}
	page := ui.Page{Title: "Customers", Path: customersTop, Lead: "Organizations that buy tokens from you."}
	return ui.Render(c, http.StatusOK, customersPage(page, &ui.Form{Values: c.QueryParams()}, g, paging(u, after, list.Next), u.With("format", "csv", "after", after)))
}

func (p *pages) customer(c echo.Context) error {
	id, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	ctx, now := c.Request().Context(), p.Clock.Now().UTC()
	x, err := p.Read.Customer(ctx, id)
	if err != nil {
		return err
	}
	s := report.SpanOf(func(string) string { return "" }, now)
	m := report.MetricOf(c.QueryParam("metric"))
	cells, err := p.Read.Usage(ctx, report.Query{From: s.From, To: s.To, Zone: time.UTC, Step: s.Step, Group: report.ByModel, Org: id})
	if err != nil {
		return err
	}
	rep := report.New(cells, s, report.ByModel, m)
	page := ui.Page{Title: "Customer " + x.Name, Head: x.Name, Path: customersTop, Up: &ui.Link{Href: customersTop, Text: "Customers"},
		Lead: "since " + x.Created.UTC().Format("2 January 2006") + " · caps reset in " + x.Zone}
	switch c.QueryParam("done") {
	case "credit":
		page.Toast = "Credit granted. It can be spent within a second."
	case "adjusted":
		page.Toast = "Adjusted. The customer sees it in the ledger."
	case "limit":
		page.Toast = "The credit limit is set."
	case "reversed":
		page.Toast = "Reversed. Both entries stay in the statement."
	case "created":
		page.Toast = "Customer created. The sign-in link is mailed, or waits in the outbox."
	}
	v := customerView{
		CustomerDetail: x, page: page, links: m.Links(report.AddressOf(c)), empty: len(rep.Rows) == 0,
		chart: rep.Bars(m, m.Title()+" by model, last 30 days"), title: m.Title() + " by model, last 30 days",
		month: now.Format("January"),
	}
	return ui.Render(c, http.StatusOK, customerPage(v))
}

// customerView is one customer's page ready to draw.
type customerView struct {
	CustomerDetail
	page         ui.Page
	title, month string
	links        []ui.Segment
	chart        ui.Bars
	empty        bool
}

func (v customerView) keyGrid() ui.Grid {
	g := ui.Grid{Caption: "API keys", Cards: true,
		Columns: []ui.Column{{Name: "Name"}, {Name: "Key", Mono: true}, {Name: "Project"}, {Name: "Last used"}, {Name: "Spend this month", Num: true}, {Name: "Cap", Num: true}, {Name: "Status"}},
		Empty:   ui.Blank{Icon: "key-round", Title: "No keys", Text: "The customer creates keys in its own console."}}
	for _, k := range v.Keys {
		limit := ui.T("none")
		if k.Cap != nil {
			limit = ui.USD(*k.Cap)
		}
		tone := ui.Quiet
		if k.State == "active" {
			tone = ui.Good
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(k.Name), ui.T(k.Shown), ui.T(k.Project), ui.Ago(k.LastUsed), ui.USD(k.Used), limit, ui.N(ui.Tag(tone, k.State), k.State)})
	}
	return g
}

func (v customerView) grantGrid() ui.Grid {
	g := ui.Grid{Caption: "Credit granted", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "Reason", Wrap: true}, {Name: "Amount", Num: true}, {Name: "Left", Num: true}, {Name: "Ends"}, {Name: "By"}},
		Empty: ui.Blank{Icon: "receipt", Title: "No credit yet", Text: "Without credit every request of this customer is refused.",
			Action: ui.Link{Href: customerPath(v.ID) + "/credit", Text: "Grant credit"}}}
	for _, x := range v.Grants {
		what := ui.T(x.Reason)
		if x.Promo {
			what = what.WithSub("promotional")
		}
		ends := ui.T("never")
		if !x.Ends.IsZero() {
			ends = ui.At(x.Ends)
		}
		g.Rows = append(g.Rows, ui.Row{ui.At(x.At), what, ui.USD(x.Amount), ui.USD(x.Left), ends, ui.T(x.By)})
	}
	return g
}

func (v customerView) memberGrid() ui.Grid {
	g := ui.Grid{Caption: "Members", Cards: true, Columns: []ui.Column{{Name: "E-mail"}, {Name: "Role"}, {Name: "Last seen"}},
		Empty: ui.Blank{Icon: "users", Title: "No members", Text: "Nobody can open the console of this customer."}}
	for _, m := range v.Members {
		g.Rows = append(g.Rows, ui.Row{ui.T(m.Email), ui.T(m.Role), ui.Ago(m.LastSeen)})
	}
	return g
}

func (p *pages) newCustomer(c echo.Context) error {
	return p.showCustomerForm(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showCustomerForm(c echo.Context, status int, f *ui.Form) error {
	page := ui.Page{Title: "Create a customer", Path: customersTop, Up: &ui.Link{Href: customersTop, Text: "Customers"}, Lead: "The owner gets a sign-in link and creates keys alone."}
	return ui.Render(c, status, customerFormPage(page, f))
}

func (p *pages) createCustomer(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	x := NewCustomer{Name: f.Get("name"), Email: f.Get("email"), Zone: f.Get("zone")}
	if n := utf8.RuneCountInString(x.Name); n == 0 || n > maxName {
		f.Fail("name", fmt.Sprintf("Enter a name of at most %d characters.", maxName))
	}
	if a, err := mail.ParseAddress(x.Email); err != nil || a.Address != x.Email {
		f.Fail("email", "Enter an e-mail address like dana@example.com.")
	}
	if _, err := time.LoadLocation(x.Zone); err != nil || x.Zone == "" || x.Zone == "Local" {
		f.Fail("zone", "Enter a zone like Europe/Berlin or UTC.")
	}
	if f.Get("credit") != "" {
		x.Credit = readAmount(f, "credit")
	}
	if f.OK() {
		id, err := p.Write.CreateCustomer(c.Request().Context(), session.Must(c), x)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, customerPath(id)+"?done=created")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showCustomerForm(c, http.StatusUnprocessableEntity, f)
}

func readAmount(f *ui.Form, field string) *money.Nano {
	n, err := money.ParseUSD(f.Get(field))
	if err != nil || n <= 0 || n > maxGrant {
		f.Fail(field, "Enter dollars like 50 or 12.50, at most 1000000.")
		return nil
	}
	return &n
}
