package console

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/billing/invoice"
	"millrace/internal/ids"
	"millrace/web/bill"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

const (
	invoicesTop = "/billing/invoices"
	detailsTop  = "/billing/details"
)

// Bills gives a customer his invoices, and says to whom they are addressed. Details that are refused are a fault.Invalid whose
// Param is the form's field.
type Bills interface {
	Invoices(ctx context.Context, who session.Viewer, after string) (InvoiceList, error) // final ones, the newest first
	Invoice(ctx context.Context, who session.Viewer, id ids.ID) (bill.Bill, error)
	InvoicePDF(ctx context.Context, who session.Viewer, id ids.ID) (bill.File, error)
	NotePDF(ctx context.Context, who session.Viewer, invoice, note ids.ID) (bill.File, error)
	SoFar(ctx context.Context, who session.Viewer) (invoice.Invoice, error) // the running month
	Details(ctx context.Context, who session.Viewer) (invoice.Details, error)
	SetDetails(ctx context.Context, who session.Viewer, d invoice.Details) error
}

// InvoiceList is a page of invoices.
type InvoiceList struct {
	List []invoice.Invoice
	Next string // for the page behind it; "" = none
}

func (p *pages) registerBills(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	g.GET(invoicesTop, in(p.invoices))
	g.GET(invoicesTop+"/so-far", in(p.soFar))
	g.GET(invoicesTop+"/:id", in(p.invoice))
	g.GET(invoicesTop+"/:id/pdf", in(p.invoicePDF))
	g.GET(invoicesTop+"/:id/credit-notes/:note", in(p.notePDF))
	g.GET(detailsTop, in(p.details))
	g.POST(detailsTop, in(p.setDetails))
}

func invoicePath(id ids.ID) string { return invoicesTop + "/" + ids.Format(ids.Invoice, id) }

func (p *pages) invoices(c echo.Context) error {
	ctx, who, after := c.Request().Context(), session.Must(c), c.QueryParam("after")
	list, err := p.Bills.Invoices(ctx, who, after)
	if err != nil {
		return err
	}
	g, u := p.invoiceGrid(list.List), report.AddressOf(c)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "invoices", g)
	}
	var paging ui.Paging
	if after != "" {
		paging.First = u.With()
	}
	if list.Next != "" {
		paging.Next = u.With("after", list.Next)
	}
	var soFar *invoice.Invoice
	if i, ok := p.soFarNow(ctx, who); ok {
		soFar = &i
	}
	page := ui.Page{Title: "Invoices", Path: "/billing", Up: &ui.Link{Href: "/billing", Text: "Billing"}, Lead: "What credit did not cover is invoiced by UTC calendar months."}
	return ui.Render(c, http.StatusOK, invoicesPage(page, g, soFar, paging, u.With("format", "csv", "after", after)))
}

// soFarWait is how long the list of invoices waits for the running month, which it can do without.
const soFarWait = 3 * time.Second

func (p *pages) soFarNow(ctx context.Context, who session.Viewer) (invoice.Invoice, bool) {
	hurried, cancel := context.WithTimeout(ctx, soFarWait)
	defer cancel()
	i, err := p.Bills.SoFar(hurried, who)
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "console: the running month is not shown", "cause", err)
	}
	return i, err == nil
}

func (p *pages) invoiceGrid(list []invoice.Invoice) ui.Grid {
	g := ui.Grid{Caption: "Invoices, newest first", Cards: true,
		Columns: []ui.Column{{Name: "Number"}, {Name: "Month"}, {Name: "State"}, {Name: "Due"}, {Name: "Total", Num: true}, {Name: "To pay", Num: true}, {Name: "Document", Hide: true}},
		Empty:   ui.Blank{Icon: "receipt", Title: "No invoices", Text: "Usage that credit pays needs none: the statement has all of it. With a credit limit, the rest of a month is invoiced two days after its end."}}
	for n := range list {
		i := &list[n]
		g.Rows = append(g.Rows, ui.Row{ui.L(invoicePath(i.ID), i.Number), ui.T(bill.Month(i.Month)), bill.State(i, p.Clock.Now()), ui.T(i.DueAt.UTC().Format("2 Jan 2006")),
			bill.Cell(i.Total), bill.Cell(i.Due()), ui.L(invoicePath(i.ID)+"/pdf", "PDF")})
	}
	return g
}

func (p *pages) soFar(c echo.Context) error {
	i, err := p.Bills.SoFar(c.Request().Context(), session.Must(c))
	if err != nil {
		return err
	}
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "so-far-"+i.Month.Format("2006-01"), bill.Lines(&i))
	}
	page := ui.Page{Title: "So far this month", Path: "/billing", Up: &ui.Link{Href: invoicesTop, Text: "Invoices"}, Lead: "The running month as the invoice that it may become", Events: []string{"usage"}}
	return ui.Render(c, http.StatusOK, soFarPage(page, &i, report.AddressOf(c).With("format", "csv")))
}

func (p *pages) invoice(c echo.Context) error {
	id, err := pathID(c, ids.Invoice)
	if err != nil {
		return err
	}
	b, err := p.Bills.Invoice(c.Request().Context(), session.Must(c), id)
	if err != nil {
		return err
	}
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, b.Number, bill.Lines(&b.Invoice))
	}
	b.Path = invoicePath(b.ID)
	page := ui.Page{Title: bill.Name(&b.Invoice), Path: "/billing", Up: &ui.Link{Href: invoicesTop, Text: "Invoices"}, Lead: "Of " + b.FinalizedAt.UTC().Format("2 January 2006") + ", for usage in " + bill.Month(b.Month)}
	return ui.Render(c, http.StatusOK, invoicePage(page, &b, report.AddressOf(c).With("format", "csv"), session.Must(c).May.Has(session.PermBilling)))
}

func (p *pages) invoicePDF(c echo.Context) error {
	id, err := pathID(c, ids.Invoice)
	if err != nil {
		return err
	}
	ctx, who := c.Request().Context(), session.Must(c)
	b, err := p.Bills.Invoice(ctx, who, id)
	if err != nil {
		return err
	}
	write, err := p.Bills.InvoicePDF(ctx, who, id)
	if err != nil {
		return err
	}
	return bill.SendPDF(c, b.Number, write)
}

func (p *pages) notePDF(c echo.Context) error {
	id, err := pathID(c, ids.Invoice)
	if err != nil {
		return err
	}
	ctx, who := c.Request().Context(), session.Must(c)
	b, err := p.Bills.Invoice(ctx, who, id)
	if err != nil {
		return err
	}
	note, err := b.FindNote(c.Param("note"))
	if err != nil {
		return err
	}
	write, err := p.Bills.NotePDF(ctx, who, id, note.ID)
	if err != nil {
		return err
	}
	return bill.SendPDF(c, note.Number, write)
}

func (p *pages) details(c echo.Context) error {
	d, err := p.Bills.Details(c.Request().Context(), session.Must(c))
	if err != nil {
		return err
	}
	return p.showDetails(c, http.StatusOK, &ui.Form{}, d)
}

func (p *pages) showDetails(c echo.Context, status int, f *ui.Form, d invoice.Details) error {
	page := ui.Page{Title: "Billing details", Path: "/billing", Up: &ui.Link{Href: "/billing", Text: "Billing"}, Lead: "To whom invoices are addressed. Invoices that are final keep what they say."}
	if c.QueryParam("done") == "saved" {
		page.Toast = "Saved. It holds for invoices to come."
	}
	return ui.Render(c, status, detailsPage(page, f, d, session.Must(c).May.Has(session.PermBilling)))
}

func (p *pages) setDetails(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	d := invoice.Details{LegalName: f.Get("legal_name"), Address: f.Get("address"), Country: f.Get("country"), TaxID: f.Get("tax_id"), Email: f.Get("email"), PurchaseOrder: f.Get("purchase_order")}
	if err := p.Bills.SetDetails(c.Request().Context(), session.Must(c), d); err != nil {
		if !f.Absorb(err) {
			return err
		}
		return p.showDetails(c, http.StatusUnprocessableEntity, f, d)
	}
	return c.Redirect(http.StatusSeeOther, detailsTop+"?done=saved")
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}
