package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/web/report"
	"millrace/web/ui"
)

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func (p *pages) reconcile(c echo.Context) error {
	r, err := p.Read.Reconcile(c.Request().Context())
	if err != nil {
		return err
	}
	g := ui.Grid{
		Caption: "Comparison, line by line",
		Columns: []ui.Column{{Name: "Side"}, {Name: "What"}, {Name: "Events", Num: true}, {Name: "Tokens", Num: true}, {Name: "Amount", Num: true}, {Name: "Note", Wrap: true}},
		Empty:   ui.Blank{Icon: "scale", Title: "Nothing was compared yet", Text: "Run millrace reconcile, by hand or on a timer. It compares what engines generated with events, ledger and invoices, and lists every difference."},
	}
	for _, l := range r.Lines {
		g.Rows = append(g.Rows, ui.Row{ui.T(l.Side), ui.T(l.Class), ui.C(l.Count), ui.Tok(l.Tokens), ui.USD(l.Amount), ui.T(l.Note)})
	}
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "reconcile", g)
	}
	page := ui.Page{Title: "Reconcile", Path: Root + "/reconcile", Lead: "What engines generated = what was recorded = what was booked.", Events: []string{"ops"}}
	return ui.Render(c, http.StatusOK, reconcilePage(page, r, g))
}

func overrunGrid(rows []Overrun) ui.Grid {
	g := ui.Grid{
		Caption: "Overruns", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "Customer"}, {Name: "Amount", Num: true}, {Name: "Why", Wrap: true}, {Name: "Request", Mono: true}},
		Empty:   ui.Blank{Icon: "check", Title: "No overruns", Text: "What a gateway delivered above its allotment is listed here. You bear it, never the customer."},
	}
	for _, r := range rows {
		g.Rows = append(g.Rows, ui.Row{ui.At(r.At), ui.T(r.OrgName), ui.USD(r.Amount), ui.T(r.Reason), ui.T(ids.Format(ids.Request, r.Request))})
	}
	return g
}

func (p *pages) exceptions(c echo.Context) error {
	after, u := c.QueryParam("after"), report.AddressOf(c)
	list, err := p.Read.Exceptions(c.Request().Context(), after)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Exceptions", Path: exceptionsTop, Lead: "What the money path did not book as usual. None of it was charged to a customer."}
	switch c.QueryParam("done") {
	case "booked":
		page.Toast = "Booked. The request is in the books."
	case "dismissed":
		page.Toast = "Dismissed. The request is never charged."
	}
	return ui.Render(c, http.StatusOK, exceptionsPage(page, list.Waiting, quarantineGrid(list.Quarantine), overrunGrid(list.Overruns), paging(u, after, list.Next)))
}

func (p *pages) audit(c echo.Context) error {
	after, u := c.QueryParam("after"), report.AddressOf(c)
	list, err := p.Read.Audit(c.Request().Context(), after)
	if err != nil {
		return err
	}
	g := ui.AuditGrid(list.Entries, true)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "audit-log", g)
	}
	page := ui.Page{Title: "Audit log", Path: Root + "/audit", Lead: "Every change by operators and customers, written in the same moment it was made."}
	return ui.Render(c, http.StatusOK, auditPage(page, g, paging(u, after, list.Next), u.With("format", "csv", "after", after)))
}

// outbox shows sign-in links, which are secrets: the page is never cached.
func (p *pages) outbox(c echo.Context) error {
	ui.NoStore(c)
	o, err := p.Read.Outbox(c.Request().Context())
	if err != nil {
		return err
	}
	g := ui.Grid{
		Caption: "Messages, newest first", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "To"}, {Name: "What", Wrap: true}, {Name: "Status"}, {Name: "Link"}},
		Empty:   ui.Blank{Icon: "mail", Title: "The outbox is empty", Text: "Sign-in links, alerts and receipts wait here while no mail server is set."},
	}
	for i, m := range o.Items {
		tone, state := m.state()
		g.Rows = append(g.Rows, ui.Row{ui.At(m.At), ui.T(m.To), ui.T(m.Subject), ui.N(ui.Tag(tone, state), state), ui.N(messageLink(i, m), "")})
	}
	page := ui.Page{Title: "Outbox", Path: Root + "/outbox", Lead: "A link signs its person in, once. Hand it only to them."}
	return ui.Render(c, http.StatusOK, outboxPage(page, o, g))
}

func (m Message) state() (ui.Tone, string) {
	switch {
	case m.Sent:
		return ui.Quiet, "mailed"
	case m.News:
		return ui.Quiet, "not mailed"
	case m.Used:
		return ui.Quiet, "used"
	case m.Link == "":
		return ui.Quiet, "expired"
	}
	return ui.Good, "waiting"
}
