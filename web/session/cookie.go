package session

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// The cookie's name. With TLS it carries the __Host- prefix: browsers then refuse it from other hosts and without Secure.
const (
	plainCookie  = "millrace_session"
	secureCookie = "__Host-millrace_session"
)

func (g *Guard) secure(c echo.Context) bool { return g.o.Secure || c.Request().TLS != nil }

func (g *Guard) cookieName(c echo.Context) string {
	if g.secure(c) {
		return secureCookie
	}
	return plainCookie
}

// secret is the session cookie's value, or "".
func (g *Guard) secret(c echo.Context) string {
	k, err := c.Request().Cookie(g.cookieName(c))
	if err != nil {
		return ""
	}
	return k.Value
}

func (g *Guard) setCookie(c echo.Context, value string, expires time.Time) {
	k := &http.Cookie{
		Name: g.cookieName(c), Value: value, Path: "/", Expires: expires,
		HttpOnly: true, Secure: g.secure(c), SameSite: http.SameSiteLaxMode,
	}
	if value == "" {
		k.MaxAge = -1
	}
	c.SetCookie(k)
}
