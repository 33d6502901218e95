package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/statement"
	"millrace/web/ui"
)

const (
	approvalsTop  = Root + "/approvals"
	requestPrefix = "creq"
)

// Approval is what an operator asked for.
type Approval struct {
	ID      ids.ID
	Org     ids.ID
	OrgName string
	What    string // in words: "Grant, promotional", "Reversal of txn_…"
	Amount  money.Nano
	Reason  string
	By      string
	Mine    bool // the viewer asked, or a control token that he made: somebody else must approve
	At      time.Time
	State   string // waiting, done, refused
	Decided string // by whom; "" = at once, or not yet
	Note    string
}

// CreditLimit is how much a customer may use beyond his credit.
type CreditLimit struct {
	ID     ids.ID // of the form
	Org    ids.ID
	Limit  money.Nano
	Reason string
}

// Adjustment corrects what a customer has.
type Adjustment struct {
	ID     ids.ID // of the form: sending it twice does it once
	Org    ids.ID
	Amount money.Nano // negative takes
	Reason string
}

// Reversal undoes one transaction.
type Reversal struct {
	ID     ids.ID
	Org    ids.ID
	Txn    ids.ID
	Reason string
}

func (p *pages) registerApprovals(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	g.GET(approvalsTop, in(p.approvals))
	g.POST(approvalsTop+"/:id/approve", in(p.approve))
	g.GET(approvalsTop+"/:id/refuse", in(p.refuseForm))
	g.POST(approvalsTop+"/:id/refuse", in(p.refuse))
	g.GET(Root+"/customers/:id/adjust", in(p.adjustForm))
	g.POST(Root+"/customers/:id/adjust", in(p.adjust))
	g.GET(Root+"/customers/:id/credit-limit", in(p.limitForm))
	g.POST(Root+"/customers/:id/credit-limit", in(p.setLimit))
	g.GET(Root+"/customers/:id/reverse", in(p.reverseForm))
	g.POST(Root+"/customers/:id/reverse", in(p.reverse))
	g.GET(Root+"/customers/:id/statement", in(p.statement))
}

// afterAsking leads to the customer, or to what waits.
func afterAsking(c echo.Context, org ids.ID, waits bool, done string) error {
	if waits {
		return c.Redirect(http.StatusSeeOther, approvalsTop+"?done=asked")
	}
	return c.Redirect(http.StatusSeeOther, customerPath(org)+"?done="+done)
}

// readEnd is the end of the named day, UTC; zero when none is named.
func readEnd(f *ui.Form) time.Time {
	text := f.Get("ends")
	if text == "" {
		return time.Time{}
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		f.Fail("ends", "Enter a day like 2027-01-31.")
		return time.Time{}
	}
	return day.AddDate(0, 0, 1)
}

func (p *pages) approvals(c echo.Context) error {
	list, err := p.Read.Approvals(c.Request().Context())
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Approvals", Path: approvalsTop, Lead: "Large grants, credit limits, adjustments, reversals, credit notes, what is sent of them by hand and write-offs wait here for a second operator. Nothing happens before."}
	switch c.QueryParam("done") {
	case "asked":
		page.Toast = "Asked. It happens when a second operator approves it."
	case "approved":
		page.Toast = "Approved and booked."
	case "refused":
		page.Toast = "Refused. Nothing was booked."
	}
	var waiting, decided []Approval
	for _, a := range list {
		if a.State == "waiting" {
			waiting = append(waiting, a)
		} else {
			decided = append(decided, a)
		}
	}
	return ui.Render(c, http.StatusOK, approvalsPage(page, asksGrid(waiting), decisionsGrid(decided)))
}

func asksGrid(list []Approval) ui.Grid {
	g := ui.Grid{Caption: "Waiting", Cards: true,
		Columns: []ui.Column{{Name: "Customer"}, {Name: "What", Wrap: true}, {Name: "Amount", Num: true}, {Name: "Asked by"}, {Name: "When"}, {Name: "Actions", Hide: true}},
		Empty:   ui.Blank{Icon: "check", Title: "Nothing waits", Text: "What is given or taken above the limit needs two operators and appears here."}}
	for _, a := range list {
		g.Rows = append(g.Rows, ui.Row{ui.L(customerPath(a.Org), a.OrgName), ui.T(a.What).WithSub(a.Reason), ui.USD(a.Amount), ui.T(a.By), ui.Ago(a.At), ui.N(approvalActions(a), "")})
	}
	return g
}

func decisionsGrid(list []Approval) ui.Grid {
	g := ui.Grid{Caption: "Done and refused, newest first", Cards: true,
		Columns: []ui.Column{{Name: "Customer"}, {Name: "What", Wrap: true}, {Name: "Amount", Num: true}, {Name: "Asked by"}, {Name: "When"}, {Name: "Outcome", Wrap: true}},
		Empty:   ui.Blank{Icon: "receipt", Title: "Nothing yet", Text: "Credit that operators gave, took or reversed is listed here, with who asked and who approved."}}
	for _, a := range list {
		tone, word, sub := ui.Good, "done", "at once, below the limit"
		if a.Decided != "" {
			sub = "approved by " + a.Decided
		}
		if a.State == "refused" {
			tone, word, sub = ui.Quiet, "refused", "by "+a.Decided+": "+a.Note
		}
		g.Rows = append(g.Rows, ui.Row{ui.L(customerPath(a.Org), a.OrgName), ui.T(a.What).WithSub(a.Reason), ui.USD(a.Amount), ui.T(a.By), ui.Ago(a.At), ui.N(ui.Tag(tone, word), word).WithSub(sub)})
	}
	return g
}

func (p *pages) findApproval(c echo.Context) (Approval, error) {
	id, err := pathID(c, requestPrefix)
	if err != nil {
		return Approval{}, err
	}
	list, err := p.Read.Approvals(c.Request().Context())
	if err != nil {
		return Approval{}, err
	}
	for _, a := range list {
		if a.ID == id {
			return a, nil
		}
	}
	return Approval{}, errMissing()
}

func (p *pages) approve(c echo.Context) error {
	id, err := pathID(c, requestPrefix)
	if err != nil {
		return err
	}
	if err := p.Write.Approve(c.Request().Context(), session.Must(c), id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, approvalsTop+"?done=approved")
}

func (p *pages) refuseForm(c echo.Context) error { return p.showRefuse(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showRefuse(c echo.Context, status int, f *ui.Form) error {
	a, err := p.findApproval(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Refuse this", Path: approvalsTop, Up: &ui.Link{Href: approvalsTop, Text: "Approvals"}}
	return ui.Render(c, status, refusePage(page, a, f))
}

func (p *pages) refuse(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	a, err := p.findApproval(c)
	if err != nil {
		return err
	}
	note := readReason(f, "note", "")
	if f.OK() {
		err := p.Write.Refuse(c.Request().Context(), session.Must(c), a.ID, note)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, approvalsTop+"?done=refused")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showRefuse(c, http.StatusUnprocessableEntity, f)
}

// readReason reads why something is done; reader says in a sentence who will read it.
func readReason(f *ui.Form, field, reader string) string {
	text := f.Get(field)
	if n := utf8.RuneCountInString(text); n == 0 || n > maxReason {
		f.Fail(field, strings.TrimSpace(fmt.Sprintf("Say why, in at most %d characters. %s", maxReason, reader)))
	}
	return text
}

// Who reads a reason.
const (
	operatorsRead = "Other operators read it."
	customerReads = "The customer sees it in the ledger."
)

func (p *pages) statement(c echo.Context) error {
	id, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	x, err := p.Read.Customer(c.Request().Context(), id)
	if err != nil {
		return err
	}
	now := p.Clock.Now()
	month := report.Month(c, now)
	s, err := p.Read.Statement(c.Request().Context(), id, month)
	if err != nil {
		return err
	}
	g := s.Grid(func(time.Time) string { return "" }, func(l statement.Line) *ui.Link {
		if !l.Reversible {
			return nil
		}
		return &ui.Link{Href: customerPath(id) + "/reverse?txn=" + ids.Format(ids.Txn, l.Txn), Text: "Reverse"}
	})
	if c.QueryParam("format") == "csv" {
		return ui.CSV(c, "statement-"+month.From.Format("2006-01"), g)
	}
	u := report.AddressOf(c)
	return ui.Render(c, http.StatusOK, statement.Body(statement.View{
		Page: ui.Page{Title: "Statement of " + x.Name, Path: customersTop, Up: &ui.Link{Href: customerPath(id), Text: x.Name},
			Lead: month.From.Format("January 2006") + " · a UTC calendar month"},
		S: s, Grid: g, Months: report.Months(c, month, now), CSV: u.With("format", "csv")}))
}
