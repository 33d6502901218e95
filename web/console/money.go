package console

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/money"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

func (p *pages) billing(c echo.Context) error {
	after, u := c.QueryParam("after"), report.AddressOf(c)
	b, err := p.Read.Billing(c.Request().Context(), session.Must(c), after)
	if err != nil {
		return err
	}
	g := ledgerGrid(b.Lines)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "ledger", g)
	}
	var paging ui.Paging
	if after != "" {
		paging.First = u.With()
	}
	if b.Next != "" {
		paging.Next = u.With("after", b.Next)
	}
	page := ui.Page{Title: "Billing", Path: "/billing", Lead: "Prepaid. Billing periods are UTC calendar months."}
	return ui.Render(c, http.StatusOK, billingPage(page, b, g, paging, u.With("format", "csv", "after", after), session.Must(c).May.Has(session.PermBilling)))
}

func ledgerGrid(lines []LedgerLine) ui.Grid {
	g := ui.Grid{
		Caption: "Ledger, newest first", Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "What"}, {Name: "Amount", Num: true}, {Name: "Balance", Num: true}, {Name: "Reference", Mono: true}},
		Empty:   ui.Blank{Icon: "receipt", Title: "Nothing booked yet", Text: "Credit and usage appear here. Every line stays as it was written; a correction is a new line."},
	}
	for _, l := range lines {
		g.Rows = append(g.Rows, ui.Row{ui.At(l.At), ui.T(l.Text).WithSub(l.Kind), signed(l.Amount), ui.USD(l.After), ui.T(l.Ref)})
	}
	return g
}

// signed shows the direction of a movement by its sign. Usage is the normal course of things: only money that comes in
// stands out.
func signed(n money.Nano) ui.Cell {
	c := ui.USD(n)
	if n > 0 {
		c.Node = ui.Plus(n)
	} else {
		c.Node, c.Title = nil, ui.ExactMoney(n)
	}
	return c
}

func promoNote(b Balance) string {
	switch {
	case b.Promo <= 0:
		return "none"
	case b.PromoEnds.IsZero():
		return "used first, does not expire"
	}
	return "used first, ends " + b.PromoEnds.Format("2 Jan 2006")
}
