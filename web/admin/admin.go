// Package admin is what the operator sees: the business (customers, prices, revenue), the fleet (hosts, units) and the
// operation (reconcile, exceptions, audit log, outbox).
//
// It owns pages and forms, not data: everything is read through Reader and changed through Writer, implemented on the
// domain, which checks the operator's rights again and audits every change in its own transaction. Invariants: a price is
// only ever added, never edited; a change that looks like a slip of the unit must be typed twice; whatever a simulated
// engine has a part in says so; secrets are shown once and never cached.
package admin

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/billing/margin"
	"millrace/billing/month"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/statement"
	"millrace/web/ui"
)

// Reader gives the operator's pages what they show, over all customers. Times are instants; the pages print UTC.
type Reader interface {
	Overview(ctx context.Context) (Overview, error)
	// Usage is over all customers, or q.Org alone; groups model, org and day. Zone is always UTC.
	Usage(ctx context.Context, q report.Query) ([]report.Cell, error)
	Customers(ctx context.Context, search, after string) (CustomerList, error) // by name; search is a part of name, e-mail or key prefix
	Customer(ctx context.Context, id ids.ID) (CustomerDetail, error)
	Models(ctx context.Context) ([]Model, error)
	Model(ctx context.Context, id ids.ID) (ModelDetail, error)
	// PreviewPrice prices the newest traffic under a price, which it does not publish.
	PreviewPrice(ctx context.Context, p NewPrice) (PricePreview, error)
	Hosts(ctx context.Context) ([]Host, error)
	Host(ctx context.Context, id ids.ID) (Host, error)
	Units(ctx context.Context) ([]Unit, error)
	Unit(ctx context.Context, id ids.ID) (Unit, error)
	Revenue(ctx context.Context, month report.Span) ([]RevenueRow, error) // settled usage of one UTC calendar month
	// Months are the accounting months, the newest first; Month is one, with what keeps it from being closed.
	Months(ctx context.Context) ([]month.Line, error)
	Month(ctx context.Context, start time.Time) (month.Report, []month.Reason, error)
	// Margin is revenue beside cost over whole hours, by hour or day; only hours that are accrued are in it.
	Margin(ctx context.Context, from, to time.Time, hourly bool) (margin.Report, error)
	Fleets(ctx context.Context) ([]margin.Fleet, error)
	// Export checks what it is asked for; rows are read as the file is written.
	Export(ctx context.Context, x report.Export) (report.File, error)
	Reconcile(ctx context.Context) (Reconciliation, error) // the last run; zero At when there was none
	Exceptions(ctx context.Context, after string) (ExceptionList, error)
	Quarantined(ctx context.Context, id ids.ID) (QuarantinedDetail, error)
	Audit(ctx context.Context, after string) (AuditList, error)
	Outbox(ctx context.Context) (Outbox, error)
	Approvals(ctx context.Context) ([]Approval, error) // what waits first, then the newest
	Statement(ctx context.Context, org ids.ID, month report.Span) (statement.Statement, error)
}

// Writer makes the operator's changes. Refused input is a fault.Invalid or fault.Conflict whose Param is the form field.
type Writer interface {
	CreateCustomer(ctx context.Context, who session.Viewer, c NewCustomer) (ids.ID, error)
	// GrantCredit adds credit, or asks a second operator (waits). A grant with the same id is a Conflict: the form was sent
	// twice.
	GrantCredit(ctx context.Context, who session.Viewer, g Grant) (waits bool, err error)
	// Adjust corrects a customer's credit; Reverse undoes one transaction, once. Both may wait for a second operator.
	Adjust(ctx context.Context, who session.Viewer, a Adjustment) (waits bool, err error)
	// SetCreditLimit says how much a customer may use beyond credit; a large raise waits for a second operator.
	SetCreditLimit(ctx context.Context, who session.Viewer, l CreditLimit) (waits bool, err error)
	Reverse(ctx context.Context, who session.Viewer, r Reversal) (waits bool, err error)
	// Approve does what another operator asked for; Refuse ends it, with a word.
	Approve(ctx context.Context, who session.Viewer, id ids.ID) error
	Refuse(ctx context.Context, who session.Viewer, id ids.ID, note string) error
	// PublishPrice adds an immutable version. A zero Effective means from now on.
	PublishPrice(ctx context.Context, who session.Viewer, p NewPrice) error
	// CancelPrice takes back a version that lies at least a minute ahead.
	CancelPrice(ctx context.Context, who session.Viewer, version ids.ID) error
	// BookQuarantined charges an event in quarantine after all; one that still cannot be booked is a Conflict.
	BookQuarantined(ctx context.Context, who session.Viewer, id ids.ID) error
	// DismissQuarantined decides that it is never charged, and why. Both decisions are made once.
	DismissQuarantined(ctx context.Context, who session.Viewer, id ids.ID, why string) error
	// CloseMonth keeps a month as it is. typed is its name; the form's field is confirm.
	CloseMonth(ctx context.Context, who session.Viewer, start time.Time, typed string) error
	// DraftMonth looks a frozen month through again for who owes something and has no final invoice; made is how many drafts came of it.
	DraftMonth(ctx context.Context, who session.Viewer, start time.Time) (made int, err error)
	// SetGPUPrice says what a GPU-hour of a fleet costs from now on. The form's field is price.
	SetGPUPrice(ctx context.Context, who session.Viewer, f margin.Fleet, gpuHour money.Nano) error
	// JoinToken makes a one-time token and the command line that uses it on a new host; "" lets a name be made up. The name
	// of a known host gives that one a new identity. Refused input is a fault.Invalid whose Param is name.
	JoinToken(ctx context.Context, who session.Viewer, name string) (Join, error)
	// Attach adds an engine or provider that someone already runs, as a unit without a host. It returns the model it
	// serves, which may be new and without a price.
	Attach(ctx context.Context, who session.Viewer, a Attachment) (model ids.ID, err error)
	// Detach takes an attached unit out of service; running answers finish.
	Detach(ctx context.Context, who session.Viewer, unit ids.ID) error
}

// Deps is what the pages need.
type Deps struct {
	Read  Reader
	Write Writer
	Pay   Payments
	Bills Bills
	Clock clock.Clock
}

type pages struct{ Deps }

// Root is the path of the operator's console.
const Root = "/admin"

// Register adds the operator's routes. The group must sit behind session's middleware; Register adds RequireOperator
// itself.
func Register(g *echo.Group, d Deps) {
	p := &pages{d}
	in := func(h echo.HandlerFunc) echo.HandlerFunc { return session.RequireOperator(h) }
	g.GET(Root, in(p.overview))
	g.GET(Root+"/palette", in(p.palette))
	g.GET(Root+"/customers", in(p.customers))
	g.POST(Root+"/customers", in(p.createCustomer))
	g.GET(Root+"/customers/new", in(p.newCustomer))
	g.GET(Root+"/customers/:id", in(p.customer))
	g.GET(Root+"/customers/:id/credit", in(p.creditForm))
	g.POST(Root+"/customers/:id/credit", in(p.grantCredit))
	p.registerApprovals(g, in)
	g.GET(Root+"/models", in(p.models))
	g.GET(Root+"/models/:id", in(p.model))
	g.GET(Root+"/models/:id/price", in(p.priceForm))
	g.POST(Root+"/models/:id/price", in(p.publishPrice))
	g.GET(Root+"/models/:id/versions/:version/cancel", in(p.confirmCancel))
	g.POST(Root+"/models/:id/versions/:version/cancel", in(p.cancelPrice))
	g.GET(Root+"/revenue", in(p.revenue))
	g.GET(Root+"/revenue/export", in(p.export))
	g.GET(Root+"/revenue/export/file", in(p.exportFile))
	p.registerMonths(g, in)
	p.registerBills(g, in)
	g.GET(marginTop, in(p.margin))
	g.GET(marginTop+"/price", in(p.gpuPriceForm))
	g.POST(marginTop+"/price", in(p.setGPUPrice))
	g.GET(Root+"/hosts", in(p.hosts))
	g.GET(Root+"/hosts/join", in(p.joinForm))
	g.POST(Root+"/hosts/join", in(p.join))
	g.GET(Root+"/hosts/:id", in(p.host))
	g.GET(Root+"/units", in(p.units))
	g.POST(Root+"/units", in(p.attach))
	g.GET(Root+"/units/attach", in(p.attachForm))
	g.GET(Root+"/units/:id", in(p.unit))
	g.GET(Root+"/units/:id/detach", in(p.confirmDetach))
	g.POST(Root+"/units/:id/detach", in(p.detach))
	g.GET(Root+"/reconcile", in(p.reconcile))
	g.GET(Root+"/exceptions", in(p.exceptions))
	g.GET(Root+"/quarantine/:id", in(p.quarantined))
	g.GET(Root+"/quarantine/:id/book", in(p.bookForm))
	g.POST(Root+"/quarantine/:id/book", in(p.book))
	g.GET(Root+"/quarantine/:id/dismiss", in(p.dismissForm))
	g.POST(Root+"/quarantine/:id/dismiss", in(p.dismiss))
	p.registerPayments(g, in)
	g.GET(Root+"/audit", in(p.audit))
	g.GET(Root+"/outbox", in(p.outbox))
}

// pathID reads an id of the path; a malformed one is a page that does not exist.
func pathID(c echo.Context, prefix string) (ids.ID, error) {
	id, err := ids.Parse(prefix, c.Param("id"))
	if err != nil {
		return ids.Nil, notThere(err)
	}
	return id, nil
}

func notThere(cause error) error {
	return fault.New(fault.NotFound, "There is nothing with this id.").WithCause(cause)
}

// paging makes the links of a keyset-paged list.
func paging(u report.Address, after, next string) ui.Paging {
	var p ui.Paging
	if after != "" {
		p.First = u.With()
	}
	if next != "" {
		p.Next = u.With("after", next)
	}
	return p
}
