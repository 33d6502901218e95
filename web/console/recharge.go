package console

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/money"
	"millrace/web/session"
	"millrace/web/ui"
)

// rechargeView is the form of auto-recharge ready to draw. With a sentence it asks for the consent.
type rechargeView struct {
	page     ui.Page
	form     *ui.Form
	now      RechargeState
	card     Card
	test     bool
	zone     string
	sentence string
}

func (p *pages) rechargeForm(c echo.Context) error {
	return p.showRecharge(c, http.StatusOK, &ui.Form{}, "")
}

func (p *pages) showRecharge(c echo.Context, status int, f *ui.Form, sentence string) error {
	who := session.Must(c)
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	x, err := p.Pay.Paying(c.Request().Context(), who)
	if err != nil {
		return err
	}
	if x.Card == nil || x.Off {
		return c.Redirect(http.StatusSeeOther, paymentTop)
	}
	v := rechargeView{form: f, now: x.Recharge, card: *x.Card, test: x.Test, sentence: sentence, zone: ui.ZoneName(who.Location(), p.Clock.Now())}
	v.page = ui.Page{Title: "Set up auto-recharge", Path: "/billing", Up: &ui.Link{Href: paymentTop, Text: "Card and auto-recharge"}}
	if sentence != "" {
		v.page.Title = "Agree to auto-recharge"
	}
	return ui.Render(c, status, rechargePage(v))
}

// setRecharge shows the sentence first; only the button under it turns auto-recharge on.
func (p *pages) setRecharge(c echo.Context) error {
	who, ctx := session.Must(c), c.Request().Context()
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	r := Recharge{Below: readDollars(f, "below"), To: readDollars(f, "to"), MonthlyMax: readDollars(f, "monthly_max")}
	if !f.OK() {
		return p.showRecharge(c, http.StatusUnprocessableEntity, f, "")
	}
	sentence, err := p.Pay.Consent(ctx, who, r)
	if err == nil && f.Get("step") == "agree" && f.Get("sentence") == sentence {
		if err = p.Pay.SetRecharge(ctx, who, r); err == nil {
			return c.Redirect(http.StatusSeeOther, paymentTop+"?done=recharge")
		}
	}
	if err != nil {
		if !f.Absorb(err) {
			return err
		}
		return p.showRecharge(c, http.StatusUnprocessableEntity, f, "")
	}
	if f.Get("step") == "edit" {
		sentence = ""
	}
	return p.showRecharge(c, http.StatusOK, f, sentence)
}

func (p *pages) stopRecharge(c echo.Context) error {
	who := session.Must(c)
	if err := who.Allow(session.PermBilling); err != nil {
		return err
	}
	if err := p.Pay.StopRecharge(c.Request().Context(), who); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, paymentTop+"?done=stopped")
}

// was is what the form offers: what is set, or a sensible beginning.
func (v rechargeView) was(n money.Nano, begin string) string {
	if n > 0 {
		return n.String()
	}
	return begin
}
