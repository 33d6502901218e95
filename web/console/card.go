package console

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/session"
	"millrace/web/ui"
)

func (p *pages) addCard(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	id, err := ids.Parse(ids.Topup, f.Get("id"))
	if err != nil {
		return fault.New(fault.Invalid, "This form was incomplete. Load the page anew and send it again.")
	}
	url, err := p.Pay.AddCard(c.Request().Context(), who, id)
	if err != nil {
		return err
	}
	return leave(c, url, paymentTop, "Give a card")
}

func (p *pages) receipts(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	url, err := p.Pay.Receipts(c.Request().Context(), who)
	if err != nil {
		return err
	}
	return leave(c, url, paymentTop, "Receipts")
}

func (p *pages) confirmRemoveCard(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	x, err := p.Pay.Paying(c.Request().Context(), who)
	if err != nil {
		return err
	}
	if x.Card == nil {
		return c.Redirect(http.StatusSeeOther, paymentTop)
	}
	page := ui.Page{Title: "Remove the card", Path: "/billing", Up: &ui.Link{Href: paymentTop, Text: "Card and auto-recharge"}}
	return ui.Render(c, http.StatusOK, removeCardPage(page, x))
}

func (p *pages) removeCard(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	if err := p.Pay.RemoveCard(c.Request().Context(), who); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, paymentTop+"?done=removed")
}

func (k Card) name() string { return k.Brand + " …" + k.Last4 }

func (k Card) expiry() string {
	if k.Expiry.IsZero() {
		return "–"
	}
	return k.Expiry.Format("01/2006")
}
