package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/session"
	"millrace/web/ui"
)

func (p *pages) limitForm(c echo.Context) error { return p.showLimit(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showLimit(c echo.Context, status int, f *ui.Form) error {
	id, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	x, err := p.Read.Customer(c.Request().Context(), id)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Credit limit of " + x.Name, Path: customersTop, Up: &ui.Link{Href: customerPath(id), Text: x.Name}}
	return ui.Render(c, status, limitPage(page, x, f, ids.New().String()))
}

func (p *pages) setLimit(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	org, err := pathID(c, ids.Org)
	if err != nil {
		return err
	}
	l := CreditLimit{Org: org, ID: readFormID(f), Reason: readReason(f, "reason", "")}
	if l.Limit, err = money.ParseUSD(f.Get("credit_limit")); err != nil || l.Limit < 0 {
		f.Fail("credit_limit", "Enter dollars like 500, or 0.")
	}
	if f.OK() {
		waits, err := p.Write.SetCreditLimit(c.Request().Context(), session.Must(c), l)
		if err == nil {
			return afterAsking(c, org, waits, "limit")
		}
		if !f.Absorb(err) {
			return err
		}
	}
	return p.showLimit(c, http.StatusUnprocessableEntity, f)
}
