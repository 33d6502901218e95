package console

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/internal/money"
	"millrace/web/session"
	"millrace/web/ui"
)

// lowText says what is told about a low balance.
func lowText(l Low) string {
	switch {
	case l.Below == 0:
		return "Nobody is told when the balance is low."
	case !l.Since.IsZero():
		return "The balance is below " + ui.FormatMoney(l.Below) + ": owners, admins and billing people were told by mail, your webhooks by the event balance.low. It is told again after the balance has been above."
	}
	return "When the balance falls below " + ui.FormatMoney(l.Below) + ", owners, admins and billing people get a mail, and your webhooks the event balance.low; once per fall."
}

func (p *pages) lowForm(c echo.Context) error { return p.showLow(c, http.StatusOK, &ui.Form{}) }

func (p *pages) showLow(c echo.Context, status int, f *ui.Form) error {
	who := session.Must(c)
	if err := who.Allow(session.PermCaps); err != nil {
		return err
	}
	l, err := p.Read.Limits(c.Request().Context(), who)
	if err != nil {
		return err
	}
	page := ui.Page{Title: "Low balance", Path: "/limits", Up: &ui.Link{Href: "/limits", Text: "Limits and caps"}, Lead: "Be told before requests are refused for want of credit."}
	return ui.Render(c, status, lowPage(page, f, l.Low))
}

func (p *pages) setLow(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	var below money.Nano
	if text := f.Get("below"); text != "" {
		if below, err = money.ParseUSD(text); err != nil || below <= 0 {
			f.Fail("below", "Enter an amount in dollars, for example 25, or nothing.")
		}
	}
	if f.OK() {
		err := p.Write.SetLow(c.Request().Context(), session.Must(c), below)
		switch {
		case err == nil && below == 0:
			return c.Redirect(http.StatusSeeOther, "/limits?done=off")
		case err == nil:
			return c.Redirect(http.StatusSeeOther, "/limits?done=low")
		case !f.Absorb(err):
			return err
		}
	}
	return p.showLow(c, http.StatusUnprocessableEntity, f)
}

// lowDefault is the threshold as the form's field takes it.
func lowDefault(l Low) string {
	if l.Below == 0 {
		return ""
	}
	return l.Below.String()
}
