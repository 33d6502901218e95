package console

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
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

// limitsView is the limits page ready to draw.
type limitsView struct {
	Limits
	page     ui.Page
	canCaps  bool
	projects ui.Grid
	keys     ui.Grid
}

func (p *pages) limits(c echo.Context) error {
	who := session.Must(c)
	l, err := p.Read.Limits(c.Request().Context(), who)
	if err != nil {
		return err
	}
	v := limitsView{Limits: l, canCaps: who.May.Has(session.PermCaps)}
	v.page = ui.Page{Title: "Limits and caps", Path: "/limits",
		Lead: "Caps stop usage at 100 %. They count from the first of the month at midnight in " + ui.ZoneName(who.Location(), p.Clock.Now()) + "."}
	if c.QueryParam("done") == "cap" {
		v.page.Toast = "Saved. The cap acts on every gateway within a second."
	}
	v.projects = capGrid("Caps of projects", "Project", v.canCaps)
	for _, x := range l.Projects {
		v.projects.Rows = append(v.projects.Rows, capRow(v.canCaps, ScopeProject, ids.Format(ids.Project, x.ID), x.Name, x.Used, x.Cap))
	}
	v.keys = capGrid("Caps of keys", "Key", v.canCaps)
	for _, x := range l.Keys {
		v.keys.Rows = append(v.keys.Rows, capRow(v.canCaps, ScopeKey, ids.Format(ids.Key, x.ID), x.Name, x.Used, x.Cap))
	}
	return ui.Render(c, http.StatusOK, limitsPage(v))
}

func capGrid(caption, name string, can bool) ui.Grid {
	g := ui.Grid{
		Caption: caption, Cards: true, Columns: []ui.Column{{Name: name}, {Name: "Spend this month"}},
		Empty: ui.Blank{Icon: "key-round", Title: "No keys yet", Text: "Caps of keys are listed here.", Action: ui.Link{Href: "/keys/new", Text: "Create a key"}},
	}
	if can {
		g.Columns = append(g.Columns, ui.Column{Name: "Actions", Hide: true})
	}
	return g
}

func capRow(can bool, s Scope, id, name string, used money.Nano, limit *money.Nano) ui.Row {
	row := ui.Row{ui.T(name), ui.N(keySpend(Key{Used: used, Cap: limit}), used.String())}
	if can {
		row = append(row, ui.N(capAction("/limits/"+string(s)+"/"+id, name, limit != nil), ""))
	}
	return row
}

// capForm is the page of one cap.
type capForm struct {
	page   ui.Page
	form   *ui.Form
	action string
	name   string
	used   money.Nano
	cap    *money.Nano
	zone   string
}

func (p *pages) editCap(c echo.Context) error { return p.showCap(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showCap(c echo.Context, status int, f *ui.Form) error {
	who := session.Must(c)
	if err := who.Allow(session.PermCaps); err != nil {
		return err
	}
	v, _, err := p.findCap(c)
	if err != nil {
		return err
	}
	v.form, v.action, v.zone = f, c.Request().URL.Path, ui.ZoneName(who.Location(), p.Clock.Now())
	v.page = ui.Page{Title: "Monthly cap of " + v.name, Path: "/limits", Up: &ui.Link{Href: "/limits", Text: "Limits and caps"}}
	return ui.Render(c, status, capPage(v))
}

// findCap finds the scope named in the path among those the organization has.
func (p *pages) findCap(c echo.Context) (capForm, CapChange, error) {
	who := session.Must(c)
	missing := fault.New(fault.NotFound, "There is nothing with this id.")
	l, err := p.Read.Limits(c.Request().Context(), who)
	if err != nil {
		return capForm{}, CapChange{}, err
	}
	switch s := Scope(c.Param("scope")); s {
	case ScopeOrg:
		if c.Param("id") != orgPath(l) {
			return capForm{}, CapChange{}, missing
		}
		return capForm{name: who.OrgName, used: l.Used, cap: l.Cap}, CapChange{Scope: s, ID: l.OrgID}, nil
	case ScopeProject:
		for _, x := range l.Projects {
			if ids.Format(ids.Project, x.ID) == c.Param("id") {
				return capForm{name: x.Name, used: x.Used, cap: x.Cap}, CapChange{Scope: s, ID: x.ID}, nil
			}
		}
	case ScopeKey:
		for _, x := range l.Keys {
			if ids.Format(ids.Key, x.ID) == c.Param("id") {
				return capForm{name: x.Name, used: x.Used, cap: x.Cap}, CapChange{Scope: s, ID: x.ID}, nil
			}
		}
	}
	return capForm{}, CapChange{}, missing
}

func (p *pages) setCap(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermCaps); err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	_, change, err := p.findCap(c)
	if err != nil {
		return err
	}
	change.Cap = readCap(f)
	if f.OK() {
		err := p.Write.SetCap(c.Request().Context(), who, change)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, "/limits?done=cap")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showCap(c, http.StatusUnprocessableEntity, f)
}

func (v capForm) current() string {
	if v.cap == nil {
		return ""
	}
	return v.cap.String()
}

func limitText(n int64, unit string) string {
	if n <= 0 {
		return "no limit"
	}
	return ui.FormatCount(n) + " " + unit
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

func orgPath(l Limits) string { return ids.Format(ids.Org, l.OrgID) }
