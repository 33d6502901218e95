package admin

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	schedule "millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

func contractsPath(org ids.ID) string { return customerPath(org) + "/contracts" }

func contractPath(x schedule.Contract) string {
	return contractsPath(x.Org) + "/" + ids.Format(ids.Pact, x.ID)
}

func (p *pages) registerContracts(g *echo.Group, in func(echo.HandlerFunc) echo.HandlerFunc) {
	top := Root + "/customers/:id/contracts"
	g.GET(top, in(p.contracts))
	g.POST(top, in(p.addContract))
	g.GET(top+"/:contract/end", in(p.endForm))
	g.POST(top+"/:contract/end", in(p.endContract))
}

// contractState says a contract's state in words.
func contractState(x schedule.Contract, now time.Time) ui.Cell {
	word, tone := "in force", ui.Good
	switch {
	case x.EndsAt != nil && !x.EndsAt.After(x.StartsAt):
		word, tone = "taken back", ui.Quiet
	case now.Before(x.StartsAt):
		word, tone = "to come", ui.Warn
	case !x.Holds(now):
		word, tone = "over", ui.Quiet
	}
	return ui.N(ui.Tag(tone, word), word)
}

// canEnd reports whether a contract's end can still be moved.
func canEnd(x schedule.Contract, now time.Time) bool {
	return x.EndsAt == nil || x.EndsAt.Sub(now) > cancelNotice && x.EndsAt.After(x.StartsAt)
}

func (p *pages) contracts(c echo.Context) error { return p.showContracts(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showContracts(c echo.Context, status int, f *ui.Form) error {
	org, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	x, err := p.Read.Customer(c.Request().Context(), org)
	if err != nil {
		return err
	}
	list, err := p.Bills.Contracts(c.Request().Context(), org)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Contracts of " + x.Name, Path: customersTop, Up: &ui.Link{Href: customerPath(org), Text: x.Name}, Lead: "A contract gives the customer another price book from one moment to another. Without one the standard prices hold."}
	page.Toast = map[string]string{"added": "Added. It holds from its first moment on every gateway.", "ended": "Its end is set. What was charged stays."}[c.QueryParam("done")]
	return ui.Render(c, status, contractsPage(page, f, org, contractGrid(list, p.Clock.Now())))
}

func contractGrid(list []schedule.Contract, now time.Time) ui.Grid {
	g := ui.Grid{Caption: "Contracts, latest start first", Cards: true,
		Columns: []ui.Column{{Name: "Book"}, {Name: "State"}, {Name: "From"}, {Name: "Until"}, {Name: "Note", Wrap: true}, {Name: "By", Wrap: true}, {Name: "Actions", Hide: true}},
		Empty:   ui.Blank{Icon: "tags", Title: "No contracts", Text: "This customer pays the standard prices. Publish prices into a book of another name first, then give it to the customer here."}}
	for _, x := range list {
		until, action := ui.T("open"), ui.T("")
		if x.EndsAt != nil {
			until = ui.At(*x.EndsAt)
		}
		if canEnd(x, now) {
			action = ui.L(contractPath(x)+"/end", "End")
		}
		g.Rows = append(g.Rows, ui.Row{ui.T(x.Book), contractState(x, now), ui.At(x.StartsAt), until, ui.T(x.Note), ui.T(x.CreatedBy), action})
	}
	return g
}

// readMoment reads a moment in UTC: a day (its beginning), or a day and a time. Zero when the field is empty.
func readMoment(f *ui.Form, field string) time.Time {
	text := f.Get(field)
	if text == "" {
		return time.Time{}
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", "2006-01-02T15:04"} {
		if at, err := time.Parse(layout, text); err == nil && !at.IsZero() { // the year 1 would say that none is meant
			return at
		}
	}
	f.Fail(field, "Enter a day like 2027-01-01, or a moment like 2027-01-01 06:00, in UTC.")
	return time.Time{}
}

func (p *pages) addContract(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	n := schedule.NewContract{Org: org, Book: f.Get("book"), StartsAt: readMoment(f, "starts_at"), Note: f.Get("note")}
	if end := readMoment(f, "ends_at"); !end.IsZero() {
		n.EndsAt = &end
	}
	if f.OK() {
		err := p.Bills.AddContract(c.Request().Context(), session.Must(c), n)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, contractsPath(org)+"?done=added")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showContracts(c, http.StatusUnprocessableEntity, f)
}

func (p *pages) endForm(c echo.Context) error { return p.showEnd(c, http.StatusOK, &ui.Form{}) }

func (p *pages) findContract(c echo.Context) (schedule.Contract, error) {
	org, err := pathID(c, ids.Org)
	if err != nil {
		return schedule.Contract{}, err
	}
	id, err := ids.Parse(ids.Pact, c.Param("contract"))
	if err != nil {
		return schedule.Contract{}, notThere(err)
	}
	list, err := p.Bills.Contracts(c.Request().Context(), org)
	for _, x := range list {
		if x.ID == id {
			return x, nil
		}
	}
	if err == nil {
		err = fault.New(fault.NotFound, "There is no such contract.")
	}
	return schedule.Contract{}, err
}

func (p *pages) showEnd(c echo.Context, status int, f *ui.Form) error {
	x, err := p.findContract(c)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "End a contract", Path: customersTop, Up: &ui.Link{Href: contractsPath(x.Org), Text: "Contracts"}, Lead: "Book " + x.Book + ", since " + x.StartsAt.UTC().Format("2 Jan 2006 15:04 UTC")}
	return ui.Render(c, status, endContractPage(page, x, f, p.Clock.Now().Before(x.StartsAt)))
}

func (p *pages) endContract(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	x, err := p.findContract(c)
	if err != nil {
		return err
	}
	at := readMoment(f, "ends_at")
	if f.OK() {
		err := p.Bills.EndContract(c.Request().Context(), session.Must(c), x.Org, x.ID, at)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, contractsPath(x.Org)+"?done=ended")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showEnd(c, http.StatusUnprocessableEntity, f)
}
