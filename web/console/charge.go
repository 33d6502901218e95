package console

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/web/session"
	"millrace/web/ui"
)

// chargeView is the form that agrees to charges for invoices, ready to draw.
type chargeView struct {
	page     ui.Page
	test     bool
	card     Card
	sentence string
	changed  bool // the sentence is another one than what was agreed to
}

func (p *pages) chargeForm(c echo.Context) error { return p.showCharge(c, http.StatusOK, false) }

func (p *pages) showCharge(c echo.Context, status int, changed bool) error {
	who, ctx := session.Must(c), c.Request().Context()
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	x, err := p.Pay.Paying(ctx, who)
	if err != nil {
		return err
	}
	if x.Card == nil || x.Off {
		return c.Redirect(http.StatusSeeOther, paymentTop)
	}
	v := chargeView{test: x.Test, card: *x.Card, changed: changed}
	if v.sentence, err = p.Pay.ChargeConsent(ctx, who); err != nil {
		return err
	}
	v.page = ui.Page{Title: "Charge invoices to the card", Path: "/billing", Up: &ui.Link{Href: paymentTop, Text: "Card and auto-recharge"}}
	return ui.Render(c, status, chargePage(v))
}

// sentenceChanged reports that what was agreed to is not what holds now.
func sentenceChanged(err error) bool {
	return err != nil && fault.Of(err).Code == fault.CodeSentenceChanged
}

// chargeInvoices agrees to the sentence that the page showed. When another card was given since, it is another sentence.
func (p *pages) chargeInvoices(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	switch err := p.Pay.ChargeInvoices(ctx, who, f.Get("sentence")); {
	case sentenceChanged(err):
		return p.showCharge(c, http.StatusUnprocessableEntity, true)
	case fault.Is(err, fault.Conflict): // the card is gone: the page behind says so
		return c.Redirect(http.StatusSeeOther, paymentTop)
	case err != nil:
		return err
	}
	return c.Redirect(http.StatusSeeOther, paymentTop+"?done=charge")
}

func (p *pages) stopCharging(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	if err := p.Pay.StopCharging(c.Request().Context(), who); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, paymentTop+"?done=sent")
}
