package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/billing/invoice"
	schedule "millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/bill"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

const invoicesTop = Root + "/invoices"

// Bills gives the operator every customer's invoices and contracts, and does what is done about them. Refused input is a fault.Invalid or
// fault.Conflict whose Param is the form's field. What needs a second operator waits.
type Bills interface {
	Invoices(ctx context.Context, f invoice.Filter) ([]invoice.Invoice, error)
	StuckInvoices(ctx context.Context) ([]invoice.Stuck, error) // at the payment provider
	Invoice(ctx context.Context, org, id ids.ID) (bill.Bill, error)
	InvoicePDF(ctx context.Context, org, id ids.ID) (bill.File, error)
	NotePDF(ctx context.Context, org, id, note ids.ID) (bill.File, error)
	ReversePayment(ctx context.Context, who session.Viewer, org, id, payment ids.ID, reason string) error
	RecordPayment(ctx context.Context, who session.Viewer, org, id ids.ID, in invoice.PaymentInput) error
	CreditNote(ctx context.Context, who session.Viewer, org, id ids.ID, in invoice.NoteInput) (waits bool, err error)
	SendNoteByHand(ctx context.Context, who session.Viewer, org, id, note ids.ID, reason, key string) (waits bool, err error)
	WriteOff(ctx context.Context, who session.Viewer, org, id ids.ID, reason, key string) (waits bool, err error)
	FinalizeInvoice(ctx context.Context, who session.Viewer, org, id ids.ID) error
	// RetryInvoice looks at it anew at the payment provider; StartInvoiceOver leaves what is there and begins again.
	RetryInvoice(ctx context.Context, who session.Viewer, org, id ids.ID) error
	StartInvoiceOver(ctx context.Context, who session.Viewer, org, id ids.ID) error

	Contracts(ctx context.Context, org ids.ID) ([]schedule.Contract, error) // latest start first
	AddContract(ctx context.Context, who session.Viewer, n schedule.NewContract) error
	EndContract(ctx context.Context, who session.Viewer, org, id ids.ID, at time.Time) error // zero = as soon as possible
}

func (p *pages) registerBills(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	one := Root + "/customers/:id/invoices/:invoice"
	p.registerContracts(g, in)
	g.GET(invoicesTop, in(p.invoices))
	g.GET(one, in(p.invoice))
	g.GET(one+"/pdf", in(p.invoicePDF))
	g.POST(one+"/finalize", in(p.finalizeInvoice))
	g.POST(one+"/retry", in(p.retryInvoice))
	g.POST(one+"/start-over", in(p.startInvoiceOver))
	g.GET(one+"/payment", in(p.paymentForm))
	g.POST(one+"/payment", in(p.recordPayment))
	g.GET(one+"/payments/:payment/reversal", in(p.reversalForm))
	g.POST(one+"/payments/:payment/reversal", in(p.reversePayment))
	g.GET(one+"/credit-notes/:note", in(p.notePDF))
	g.GET(one+"/credit-notes/:note/sent-by-hand", in(p.sendForm))
	g.POST(one+"/credit-notes/:note/sent-by-hand", in(p.sendNote))
	g.GET(one+"/credit-note", in(p.noteForm))
	g.POST(one+"/credit-note", in(p.creditNote))
	g.GET(one+"/write-off", in(p.writeOffForm))
	g.POST(one+"/write-off", in(p.writeOff))
}

func invoicePath(i *invoice.Invoice) string {
	return customerPath(i.Org) + "/invoices/" + ids.Format(ids.Invoice, i.ID)
}

// invoiceViews are the lists that the page offers.
var invoiceViews = []struct {
	name, text string
	filter     invoice.Filter
}{{"", "All", invoice.Filter{}}, {"attention", "Need attention", invoice.Filter{State: invoice.Draft}}, {"open", "Open", invoice.Filter{State: invoice.Open}},
	{"overdue", "Overdue", invoice.Filter{Overdue: true}}, {"paid", "Paid", invoice.Filter{State: invoice.Paid}}}

const invoicesShown = 50

func (p *pages) invoices(c echo.Context) error {
	ctx, after, u, view := c.Request().Context(), c.QueryParam("after"), report.AddressOf(c), invoiceViews[0]
	var links []ui.Segment
	for _, v := range invoiceViews {
		if v.name == c.QueryParam("show") {
			view = v
		}
	}
	for _, v := range invoiceViews {
		links = append(links, ui.Segment{Href: u.With("show", v.name), Text: v.text, On: v.name == view.name})
	}
	f := view.filter
	f.Limit = invoicesShown
	if after != "" {
		var err error
		if f.Before, err = ids.Parse(ids.Invoice, after); err != nil {
			return notThere(err)
		}
	}
	list, err := p.Bills.Invoices(ctx, f)
	if err != nil {
		return err
	}
	stuck, err := p.Bills.StuckInvoices(ctx)
	if err != nil {
		return err
	}
	g := p.invoicesGrid(list)
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "invoices", g)
	}
	next := ""
	if len(list) == invoicesShown {
		next = ids.Format(ids.Invoice, list[len(list)-1].ID)
	}
	page := ui.Page{Title: "Invoices", Path: invoicesTop, Lead: "What credit did not cover, by customer and UTC calendar month. They are made and become final by themselves, two days after a month's end."}
	if c.QueryParam("done") == "asked" {
		page.Toast = "Asked. It happens when a second operator approves it."
	}
	return ui.Render(c, http.StatusOK, invoicesPage(page, links, g, stuckGrid(stuck), paging(u, after, next), u.With("format", "csv", "after", after)))
}

func (p *pages) invoicesGrid(list []invoice.Invoice) ui.Grid {
	g := ui.Grid{Caption: "Invoices, newest month first", Cards: true,
		Columns: []ui.Column{{Name: "Invoice"}, {Name: "Customer"}, {Name: "Month"}, {Name: "State"}, {Name: "Due", Less: true}, {Name: "Total", Num: true}, {Name: "To pay", Num: true}},
		Empty:   ui.Blank{Icon: "receipt", Title: "No invoices here", Text: "Customers with a credit limit get one for every month that their credit did not cover."}}
	for n := range list {
		i := &list[n]
		number, due := i.Number, ""
		if number == "" {
			number = "draft"
		} else {
			due = i.DueAt.UTC().Format("2 Jan 2006")
		}
		g.Rows = append(g.Rows, ui.Row{ui.L(invoicePath(i), number), ui.L(customerPath(i.Org), i.OrgName), ui.T(bill.Month(i.Month)), bill.State(i, p.Clock.Now()), ui.T(due),
			bill.Cell(i.Total), bill.Cell(i.Due())})
	}
	return g
}

func stuckGrid(list []invoice.Stuck) ui.Grid {
	g := ui.Grid{Caption: "Stuck at the payment provider", Cards: true, Columns: []ui.Column{{Name: "Invoice"}, {Name: "Customer"}, {Name: "Why", Wrap: true}, {Name: "Looked at next"}}}
	for _, s := range list {
		i := invoice.Invoice{Org: s.Org, ID: s.Invoice}
		next := ui.T("when you say so")
		if !s.Next.IsZero() {
			next = ui.At(s.Next)
		}
		g.Rows = append(g.Rows, ui.Row{ui.L(invoicePath(&i), s.Number), ui.T(s.OrgName), ui.T(s.Problem), next})
	}
	return g
}

// invoiceIDs reads the path.
func invoiceIDs(c echo.Context) (org, id ids.ID, err error) {
	if org, err = pathID(c, ids.Org); err != nil {
		return org, id, err
	}
	if id, err = ids.Parse(ids.Invoice, c.Param("invoice")); err != nil {
		err = notThere(err)
	}
	return org, id, err
}

func (p *pages) findInvoice(c echo.Context) (bill.Bill, error) {
	org, id, err := invoiceIDs(c)
	if err != nil {
		return bill.Bill{}, err
	}
	b, err := p.Bills.Invoice(c.Request().Context(), org, id)
	b.Path, b.Acts = invoicePath(&b.Invoice), true
	return b, err
}

func (p *pages) invoice(c echo.Context) error { return p.showInvoice(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showInvoice(c echo.Context, status int, f *ui.Form) error {
	b, err := p.findInvoice(c)
	if err != nil {
		return err
	}
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "invoice-"+b.Month.Format("2006-01"), bill.Lines(&b.Invoice))
	}
	page := ui.Page{Title: bill.Name(&b.Invoice), Path: invoicesTop, Up: &ui.Link{Href: invoicesTop, Text: "Invoices"}, Lead: b.OrgName + " · usage in " + bill.Month(b.Month)}
	page.Toast = map[string]string{"paid": "Recorded. The credit limit is free again by as much.", "reversed": "Taken back. What it paid is due again.", "noted": "Made. The customer sees the credit note.", "sent": "Noted. The payment provider is not asked for it any more.", "given-up": "Given up. Money that comes all the same is taken.",
		"final": "Final. It has a number and stays as it is.", "retried": "Looked at anew.", "again": "Begun again at the payment provider."}[c.QueryParam("done")]
	return ui.Render(c, status, invoicePage(page, &b, f, report.AddressOf(c).With("format", "csv")))
}

func (p *pages) invoicePDF(c echo.Context) error {
	b, err := p.findInvoice(c)
	if err != nil {
		return err
	}
	write, err := p.Bills.InvoicePDF(c.Request().Context(), b.Org, b.ID)
	if err != nil {
		return err
	}
	return bill.SendPDF(c, b.Number, write)
}

func (p *pages) notePDF(c echo.Context) error {
	b, err := p.findInvoice(c)
	if err != nil {
		return err
	}
	note, err := b.FindNote(c.Param("note"))
	if err != nil {
		return err
	}
	write, err := p.Bills.NotePDF(c.Request().Context(), b.Org, b.ID, note.ID)
	if err != nil {
		return err
	}
	return bill.SendPDF(c, note.Number, write)
}

// actOn does something about an invoice that takes no input.
func (p *pages) actOn(c echo.Context, done string, act func(ctx context.Context, who session.Viewer, org, id ids.ID) error) error {
	org, id, err := invoiceIDs(c)
	if err != nil {
		return err
	}
	if err := act(c.Request().Context(), session.Must(c), org, id); err != nil {
		f := &ui.Form{}
		if !f.Absorb(err) {
			return err
		}
		return p.showInvoice(c, http.StatusUnprocessableEntity, f)
	}
	i := invoice.Invoice{Org: org, ID: id}
	return c.Redirect(http.StatusSeeOther, invoicePath(&i)+"?done="+done)
}

func (p *pages) finalizeInvoice(c echo.Context) error {
	return p.actOn(c, "final", p.Bills.FinalizeInvoice)
}

func (p *pages) retryInvoice(c echo.Context) error {
	return p.actOn(c, "retried", p.Bills.RetryInvoice)
}

func (p *pages) startInvoiceOver(c echo.Context) error {
	return p.actOn(c, "again", p.Bills.StartInvoiceOver)
}

// billForm is a form about an invoice.
type billForm struct {
	page ui.Page
	form *ui.Form
	bill bill.Bill
	id   string // of the form: sending it twice does it once
}

func (p *pages) billForm(c echo.Context, f *ui.Form, title string) (billForm, error) {
	b, err := p.findInvoice(c)
	if err != nil {
		return billForm{}, err
	}
	if !b.State.Final() {
		return billForm{}, fault.New(fault.Conflict, "This invoice is not final yet.")
	}
	v := billForm{form: f, bill: b, id: f.Get("id"), page: ui.Page{Title: title + " " + b.Number, Path: invoicesTop, Up: &ui.Link{Href: invoicePath(&b.Invoice), Text: bill.Name(&b.Invoice)},
		Lead: b.OrgName + " · " + bill.Dollars(b.Due()) + " to be paid of " + bill.Dollars(b.Total)}}
	if v.id == "" {
		v.id = ids.New().String()
	}
	return v, nil
}

// readCents reads an amount of whole cents.
func readCents(f *ui.Form, field string) int64 {
	n, err := money.ParseUSD(f.Get(field))
	if err != nil || n <= 0 || n%invoice.NanoPerCent != 0 {
		f.Fail(field, "Enter an amount in dollars and cents, for example 120.50.")
		return 0
	}
	return int64(n / invoice.NanoPerCent)
}

func (p *pages) paymentForm(c echo.Context) error {
	return p.showPayment(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showPayment(c echo.Context, status int, f *ui.Form) error {
	v, err := p.billForm(c, f, "Record a payment of")
	if err != nil {
		return err
	}
	return ui.Render(c, status, paymentPage(v, p.Clock.Now().UTC().Format(time.DateOnly)))
}

func (p *pages) recordPayment(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, id, err := invoiceIDs(c)
	if err != nil {
		return err
	}
	in := invoice.PaymentInput{Cents: readCents(f, "amount"), Reference: f.Get("reference"), IdempotencyKey: f.Get("id")}
	if in.ReceivedAt, err = time.Parse(time.DateOnly, f.Get("received_at")); err != nil || in.ReceivedAt.IsZero() {
		f.Fail("received_at", "Enter a day like 2026-12-31.")
	}
	if f.OK() {
		err := p.Bills.RecordPayment(c.Request().Context(), session.Must(c), org, id, in)
		if err == nil {
			return p.afterBill(c, org, id, false, "paid")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showPayment(c, http.StatusUnprocessableEntity, f)
}

func (p *pages) afterBill(c echo.Context, org, id ids.ID, waits bool, done string) error {
	if waits {
		return c.Redirect(http.StatusSeeOther, approvalsTop+"?done=asked")
	}
	i := invoice.Invoice{Org: org, ID: id}
	return c.Redirect(http.StatusSeeOther, invoicePath(&i)+"?done="+done)
}

func (p *pages) noteForm(c echo.Context) error { return p.showNote(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showNote(c echo.Context, status int, f *ui.Form) error {
	v, err := p.billForm(c, f, "Credit note for")
	if err != nil {
		return err
	}
	return ui.Render(c, status, notePage(v))
}

func (p *pages) creditNote(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, id, err := invoiceIDs(c)
	if err != nil {
		return err
	}
	in := invoice.NoteInput{Cents: readCents(f, "amount"), Reason: readReason(f, "reason", "The customer reads it."), Back: invoice.Back(f.Get("back")), IdempotencyKey: f.Get("id")}
	if f.OK() {
		waits, err := p.Bills.CreditNote(c.Request().Context(), session.Must(c), org, id, in)
		if err == nil {
			return p.afterBill(c, org, id, waits, "noted")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showNote(c, http.StatusUnprocessableEntity, f)
}

func (p *pages) writeOffForm(c echo.Context) error {
	return p.showWriteOff(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showWriteOff(c echo.Context, status int, f *ui.Form) error {
	v, err := p.billForm(c, f, "Give up")
	if err != nil {
		return err
	}
	return ui.Render(c, status, writeOffPage(v))
}

func (p *pages) writeOff(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, id, err := invoiceIDs(c)
	if err != nil {
		return err
	}
	reason := readReason(f, "reason", operatorsRead)
	if f.OK() {
		waits, err := p.Bills.WriteOff(c.Request().Context(), session.Must(c), org, id, reason, f.Get("id"))
		if err == nil {
			return p.afterBill(c, org, id, waits, "given-up")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showWriteOff(c, http.StatusUnprocessableEntity, f)
}

// noteWays are where the part of a credit note goes that had been paid.
var noteWays = []ui.Option{{Value: string(invoice.BackAsCredit), Text: "becomes prepaid credit"}, {Value: string(invoice.BackByHand), Text: "is sent back by you, past the payment provider"},
	{Value: string(invoice.BackByStripe), Text: "goes back by the payment provider"}}

// centsText is an amount as a form's field takes it; "" for nothing.
func centsText(n int64) string {
	if n <= 0 {
		return ""
	}
	return bill.Cents(n).String()
}
