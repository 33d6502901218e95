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
	changed  bool // the sentence is another one than what was agreed to
}

func (p *pages) rechargeForm(c echo.Context) error {
	return p.showRecharge(c, http.StatusOK, &ui.Form{}, "", false)
}

func (p *pages) showRecharge(c echo.Context, status int, f *ui.Form, sentence string, changed bool) error {
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
	v := rechargeView{form: f, now: x.Recharge, card: *x.Card, test: x.Test, sentence: sentence, changed: changed, zone: ui.ZoneName(who.Location(), p.Clock.Now())}
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
		return p.showRecharge(c, http.StatusUnprocessableEntity, f, "", false)
	}
	agrees := f.Get("step") == "agree"
	if agrees {
		err = p.Pay.SetRecharge(ctx, who, r, f.Get("sentence"))
		if err == nil {
			return c.Redirect(http.StatusSeeOther, paymentTop+"?done=recharge")
		}
	}
	changed, sentence := sentenceChanged(err), ""
	if !agrees || changed {
		sentence, err = p.Pay.Consent(ctx, who, r)
	}
	if err != nil {
		if !f.Absorb(err) {
			return err
		}
		return p.showRecharge(c, http.StatusUnprocessableEntity, f, "", false)
	}
	switch {
	case changed:
		return p.showRecharge(c, http.StatusUnprocessableEntity, f, sentence, true)
	case f.Get("step") == "edit":
		sentence = ""
	}
	return p.showRecharge(c, http.StatusOK, f, sentence, false)
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
