package session

import (
	"net/http"
	"net/mail"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/web/ui"
)

// Register adds the sign-in routes and the theme switch. They work for strangers.
func (g *Guard) Register(r *echo.Group) {
	r.GET("/login", g.signIn)
	r.POST("/login", g.requestLink)
	r.GET("/login/link", g.showLink)
	r.POST("/login/link", g.useLink)
	r.POST("/logout", g.signOut)
	r.POST("/theme", g.setTheme)
}

func (g *Guard) signIn(c echo.Context) error {
	if _, ok := Of(c.Request().Context()); ok {
		return c.Redirect(http.StatusSeeOther, localPath(c.QueryParam("next")))
	}
	return ui.Render(c, http.StatusOK, signInPage(&ui.Form{}, c.QueryParam("done") == "out"))
}

// requestLink gives the same answer whether the address is known or not.
func (g *Guard) requestLink(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	const maxEmail = 254 // characters, RFC 5321
	addr, err := mail.ParseAddress(f.Get("email"))
	if err != nil || len(addr.Address) > maxEmail || addr.Address != f.Get("email") {
		f.Fail("email", "Enter an e-mail address like dana@example.com.")
		return ui.Render(c, http.StatusUnprocessableEntity, signInPage(f, false))
	}
	if err := g.o.Auth.RequestLink(c.Request().Context(), addr.Address, clientOf(c)); err != nil {
		return err
	}
	return ui.Render(c, http.StatusOK, sentPage())
}

// showLink only shows a button: fetching the address, as mail scanners do, must not use the link up.
func (g *Guard) showLink(c echo.Context) error {
	ui.NoStore(c)
	c.Response().Header().Set("Referrer-Policy", "no-referrer") // the address holds the token
	return ui.Render(c, http.StatusOK, linkPage(c.QueryParam("t")))
}

func (g *Guard) useLink(c echo.Context) error {
	ui.NoStore(c)
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	s, err := g.o.Auth.Exchange(c.Request().Context(), f.Get("t"), clientOf(c))
	if fault.Is(err, fault.Unauthenticated) {
		return ui.Render(c, http.StatusUnauthorized, staleLinkPage())
	}
	if err != nil {
		return err
	}
	if old := g.secret(c); old != "" { // a new session never keeps an old one alive
		if err := g.o.Auth.SignOut(c.Request().Context(), old); err != nil {
			return err
		}
	}
	g.setCookie(c, s.Secret, s.Expires)
	if s.Operator {
		return c.Redirect(http.StatusSeeOther, "/admin")
	}
	return c.Redirect(http.StatusSeeOther, "/")
}

func (g *Guard) signOut(c echo.Context) error {
	if secret := g.secret(c); secret != "" {
		if err := g.o.Auth.SignOut(c.Request().Context(), secret); err != nil {
			return err
		}
	}
	g.setCookie(c, "", time.Unix(1, 0))
	c.Response().Header().Set("Clear-Site-Data", `"cache"`)
	return c.Redirect(http.StatusSeeOther, "/login?done=out")
}

func (g *Guard) setTheme(c echo.Context) error {
	f, err := ui.ReadForm(c)
	if err != nil {
		return err
	}
	const year = 365 * 24 * 3600 // seconds a choice is kept
	k := &http.Cookie{Name: themeCookie, Value: f.Get("theme"), Path: "/", MaxAge: year, SameSite: http.SameSiteLaxMode, Secure: g.secure(c)}
	if k.Value != "light" && k.Value != "dark" {
		k.Value = "auto"
	}
	c.SetCookie(k)
	return c.Redirect(http.StatusSeeOther, localPath(f.Get("next")))
}

// localPath is next when it is a path of our own, else "/": a sign-in must never lead to another site.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return next
}
