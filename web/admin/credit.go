package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

func (p *pages) creditForm(c echo.Context) error {
	return p.showCredit(c, http.StatusOK, &ui.Form{}, false)
}

// showCredit draws the form; large asks for the customer's name to be typed.
func (p *pages) showCredit(c echo.Context, status int, f *ui.Form, large bool) error {
	id, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	x, err := p.Read.Customer(c.Request().Context(), id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Grant credit to " + x.Name, Path: customersTop, Up: &ui.Link{Href: customerPath(id), Text: x.Name}}
	return ui.Render(c, status, creditPage(page, x, f, ids.New().String(), large))
}

func (p *pages) grantCredit(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	id, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	x, err := p.Read.Customer(c.Request().Context(), id)
	if err != nil {
		return err
	}
	g := p.readGrant(f, id)
	large := g.Amount > largeGrant
	if large && f.OK() && f.Get("confirm") != x.Name {
		f.Fail("confirm", "This is more than $1,000. Type the customer's name to grant it: "+x.Name)
	}
	if f.OK() {
		waits, err := p.Write.GrantCredit(c.Request().Context(), session.Must(c), g)
		if err == nil {
			return afterAsking(c, id, waits, "credit")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showCredit(c, http.StatusUnprocessableEntity, f, large)
}

func (p *pages) readGrant(f *ui.Form, org ids.ID) Grant {
	g := Grant{Org: org, Promo: f.Get("promo") != ""}
	var err error
	if g.ID, err = ids.Parse(ids.Grant, f.Get("id")); err != nil {
		f.Fail("", "This form was incomplete. Please send it again.")
	}
	if n := readAmount(f, "amount"); n != nil {
		g.Amount = *n
	}
	g.Ends = readEnd(f)
	g.Reason = readReason(f, "reason", customerReads)
	return g
}
