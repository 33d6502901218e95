package admin

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

func errMissing() error { return fault.New(fault.NotFound, "There is nothing with this id.") }

func (p *pages) adjustForm(c echo.Context) error { return p.showAdjust(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showAdjust(c echo.Context, status int, f *ui.Form) error {
	id, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	x, err := p.Read.Customer(c.Request().Context(), id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Adjust the balance of " + x.Name, Path: customersTop, Up: &ui.Link{Href: customerPath(id), Text: x.Name}}
	return ui.Render(c, status, adjustPage(page, x, f, ids.New().String()))
}

func (p *pages) adjust(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	a := Adjustment{Org: org, ID: readFormID(f), Reason: readReason(f, "reason", "")}
	if n := readAmount(f, "amount"); n != nil {
		a.Amount = *n
	}
	switch f.Get("way") {
	case "give":
	case "take":
		a.Amount = -a.Amount
	default:
		f.Fail("way", "Choose whether the customer gets or loses it.")
	}
	if f.OK() {
		waits, err := p.Write.Adjust(c.Request().Context(), session.Must(c), a)
		if err == nil {
			return afterAsking(c, org, waits, "adjusted")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showAdjust(c, http.StatusUnprocessableEntity, f)
}

func readFormID(f *ui.Form) ids.ID {
	id, err := ids.Parse(ids.Grant, f.Get("id"))
	if err != nil {
		f.Fail("", "This form was incomplete. Please send it again.")
	}
	return id
}

func (p *pages) reverseForm(c echo.Context) error {
	return p.showReverse(c, http.StatusOK, &ui.Form{}, c.QueryParam("txn"))
}

func (p *pages) showReverse(c echo.Context, status int, f *ui.Form, txn string) error {
	id, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	x, err := p.Read.Customer(c.Request().Context(), id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Reverse a transaction of " + x.Name, Path: customersTop, Up: &ui.Link{Href: customerPath(id) + "/statement", Text: "Statement of " + x.Name}}
	return ui.Render(c, status, reversePage(page, x, f, ids.New().String(), strings.TrimSpace(txn)))
}

func (p *pages) reverse(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	r := Reversal{Org: org, ID: readFormID(f), Reason: readReason(f, "reason", "")}
	if r.Txn, err = ids.Parse(ids.Txn, f.Get("txn")); err != nil {
		f.Fail("txn", "Enter a transaction like txn_01890a5d…, from the customer's statement.")
	}
	if f.OK() {
		waits, err := p.Write.Reverse(c.Request().Context(), session.Must(c), r)
		if err == nil {
			return afterAsking(c, org, waits, "reversed")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showReverse(c, http.StatusUnprocessableEntity, f, f.Get("txn"))
}
