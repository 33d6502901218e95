package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/billing/invoice"
	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

// Payments is what operators see of the payment provider, and decide.
type Payments interface {
	Payments(ctx context.Context) (PaymentsState, error)
	PaymentEvent(ctx context.Context, id string) (PaymentEvent, error)
	// RetryPaymentEvent lets a dead event be tried again.
	RetryPaymentEvent(ctx context.Context, who session.Viewer, id string) error
	// DismissPaymentEvent decides that a dead event is never worked off, and why. Both decisions are made once.
	DismissPaymentEvent(ctx context.Context, who session.Viewer, id, why string) error
}

// PaymentsState is how it stands with the payment provider.
type PaymentsState struct {
	Off     bool // customers cannot pay by card
	Test    bool // no money moves
	Waiting []PaymentEvent
	Recent  []PaymentEvent // newest first
	Pauses  []RechargePause
	Check   PaymentCheck
	// Invoices is the same of invoices; a zero At = none yet.
	Invoices invoice.Comparison
}

// PaymentEvent is one thing that the payment provider told.
type PaymentEvent struct {
	ID, Type, Object string
	Happened         time.Time
	Received         time.Time
	Found            bool   // it never arrived; the comparison found it
	State            string // new, done, ignored, dead or dismissed
	Attempts         int
	Next             time.Time
	Problem          string
	DecidedBy, Why   string
	Payload          string // on its own page only
}

// RechargePause is a customer whose auto-recharge charges nothing.
type RechargePause struct {
	Org     ids.ID
	OrgName string
	Why     string
	At      time.Time
}

// PaymentCheck is the last comparison with the payment provider's own lists; a zero At = none yet.
type PaymentCheck struct {
	At          time.Time
	Payments    int64
	Missed      int64
	Differences []PaymentDifference
	Problem     string
}

// PaymentDifference is something that the books and the lists do not agree about.
type PaymentDifference struct{ Payment, Topup, What string }

const paymentsTop = Root + "/payments"

func eventPath(id string) string { return paymentsTop + "/" + id }

func (p *pages) registerPayments(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	g.GET(paymentsTop, in(p.payments))
	g.GET(paymentsTop+"/:id", in(p.paymentEvent))
	g.POST(paymentsTop+"/:id/retry", in(p.retryEvent))
	g.GET(paymentsTop+"/:id/dismiss", in(p.dismissEventForm))
	g.POST(paymentsTop+"/:id/dismiss", in(p.dismissEvent))
}

func (p *pages) payments(c echo.Context) error {
	x, err := p.Pay.Payments(c.Request().Context())
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Payments", Path: paymentsTop, Lead: "What the payment provider told, and whether its lists agree with our books.", Events: []string{"ops"}}
	switch c.QueryParam("done") {
	case "retry":
		page.Toast = "The event is tried again now."
	case "dismissed":
		page.Toast = "Dismissed. The event is never worked off."
	}
	return ui.Render(c, http.StatusOK, paymentsPage(page, x))
}

func eventGrid(caption string, list []PaymentEvent, empty ui.Blank) ui.Grid {
	g := ui.Grid{Caption: caption, Cards: true, Empty: empty,
		Columns: []ui.Column{{Name: "Event"}, {Name: "About", Mono: true}, {Name: "Happened"}, {Name: "State"}, {Name: "Tries", Num: true}}}
	for _, e := range list {
		tone, word := e.tone()
		how := ""
		if e.Found {
			how = "never arrived, found in the list"
		}
		g.Rows = append(g.Rows, ui.Row{ui.L(eventPath(e.ID), e.Type).WithSub(how), ui.T(e.Object), ui.Ago(e.Happened), ui.N(ui.Tag(tone, word), word), ui.C(int64(e.Attempts))})
	}
	return g
}

func (e PaymentEvent) tone() (ui.Tone, string) {
	switch e.State {
	case "dead":
		return ui.Bad, "given up"
	case "new":
		if e.Attempts > 0 {
			return ui.Warn, "tried again"
		}
		return ui.Info, "waits"
	case "done":
		return ui.Good, "done"
	}
	return ui.Quiet, e.State
}

func waitingGrid(list []PaymentEvent) ui.Grid {
	return eventGrid("Events that wait", list, ui.Blank{Icon: "check", Title: "Nothing waits", Text: "Events that cannot be worked off are tried again for a day, and then wait here for you."})
}

func recentGrid(list []PaymentEvent) ui.Grid {
	return eventGrid("Newest events", list, ui.Blank{Icon: "receipt", Title: "No events yet", Text: "The payment provider's events are stored here as they come."})
}

func pauseGrid(list []RechargePause) ui.Grid {
	g := ui.Grid{Caption: "Paused auto-recharges", Cards: true, Columns: []ui.Column{{Name: "Customer"}, {Name: "Why", Wrap: true}, {Name: "Since"}},
		Empty: ui.Blank{Icon: "check", Title: "None is paused", Text: "Customers whose card is refused, or who are charged far too often, are listed here."}}
	for _, x := range list {
		g.Rows = append(g.Rows, ui.Row{ui.L(customerPath(x.Org), x.OrgName), ui.T(x.Why), ui.Ago(x.At)})
	}
	return g
}

func differenceGrid(list []PaymentDifference) ui.Grid {
	g := ui.Grid{Caption: "Differences", Cards: true, Columns: []ui.Column{{Name: "Payment", Mono: true}, {Name: "Top-up", Mono: true}, {Name: "What differs", Wrap: true}},
		Empty: ui.Blank{Icon: "check", Title: "No difference", Text: "Every payment of the last three days is in our books, and nothing else is."}}
	for _, x := range list {
		g.Rows = append(g.Rows, ui.Row{ui.T(orDash(x.Payment)), ui.T(x.Topup), ui.T(x.What)})
	}
	return g
}

func invoiceDifferenceGrid(list []invoice.Difference) ui.Grid {
	g := ui.Grid{Caption: "Differences of invoices", Cards: true, Columns: []ui.Column{{Name: "There", Mono: true}, {Name: "Invoice", Mono: true}, {Name: "What differs", Wrap: true}},
		Empty: ui.Blank{Icon: "check", Title: "No difference", Text: "Every invoice of the last 100 days is there as it is here, and nothing else is."}}
	for _, x := range list {
		here := ui.T(x.Invoice)
		if x.Org != "" { // known here
			here = ui.L(Root+"/customers/"+x.Org+"/invoices/"+x.Invoice, x.Invoice)
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(orDash(x.Ref)), here, ui.T(x.What)})
	}
	return g
}

func (p *pages) paymentEvent(c echo.Context) error {
	e, err := p.Pay.PaymentEvent(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Event " + e.ID, Head: e.Type, Path: paymentsTop, Up: &ui.Link{Href: paymentsTop, Text: "Payments"}}
	return ui.Render(c, http.StatusOK, paymentEventPage(page, e))
}

func (p *pages) retryEvent(c echo.Context) error {
	if err := p.Pay.RetryPaymentEvent(c.Request().Context(), session.Must(c), c.Param("id")); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, paymentsTop+"?done=retry")
}

func (p *pages) dismissEventForm(c echo.Context) error {
	return p.showDismissEvent(c, http.StatusOK, &ui.Form{})
}

func (p *pages) showDismissEvent(c echo.Context, status int, f *ui.Form) error {
	e, err := p.Pay.PaymentEvent(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Dismiss event " + e.ID, Head: "Dismiss this event", Path: paymentsTop, Up: &ui.Link{Href: eventPath(e.ID), Text: e.Type}}
	return ui.Render(c, status, dismissEventPage(page, e, f))
}

func (p *pages) dismissEvent(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	why := readReason(f, "reason", operatorsRead)
	if f.OK() {
		err := p.Pay.DismissPaymentEvent(c.Request().Context(), session.Must(c), c.Param("id"), why)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, paymentsTop+"?done=dismissed")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showDismissEvent(c, http.StatusUnprocessableEntity, f)
}
