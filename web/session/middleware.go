package session

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/ui"
)

// Middleware are the guards of every browser route, outermost first: headers, cross-site protection, who is asking.
func (g *Guard) Middleware() []echo.MiddlewareFunc {
	return []echo.MiddlewareFunc{g.headers, g.sameSite, g.identify}
}

// headers sets the security headers and a fresh nonce for the page's own scripts.
func (g *Guard) headers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		nonce := rand.Text()
		h := c.Response().Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self' 'nonce-"+nonce+"'; style-src 'self'; "+
			"img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
		h.Set(echo.HeaderCacheControl, "private, no-cache")
		if g.secure(c) {
			h.Set(echo.HeaderStrictTransportSecurity, "max-age=31536000")
		}
		r := c.Request()
		c.SetRequest(r.WithContext(templ.WithNonce(r.Context(), nonce)))
		return next(c)
	}
}

// sameSite refuses requests that change something and come from another site.
func (g *Guard) sameSite(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := g.csrf.Check(c.Request()); err != nil {
			return fault.New(fault.Forbidden, "This request was refused because it came from another site.").WithCause(err)
		}
		return next(c)
	}
}

// identify looks the cookie up and puts viewer and chrome into the context. A bad cookie is a stranger, not an error;
// a database that is away is an error, because a signed-in person must not be sent to the sign-in page for it.
func (g *Guard) identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		chrome := ui.Chrome{Theme: themeOf(r), Now: g.o.Clock.Now(), Path: r.URL.RequestURI()}
		ctx := r.Context()
		if secret := g.secret(c); secret != "" {
			v, err := g.o.Auth.Lookup(ctx, secret)
			switch {
			case err == nil:
				v.Client = clientOf(c)
				ctx = context.WithValue(ctx, viewerKey{}, v)
				chrome = dress(chrome, v, r.URL.Path)
			case !fault.Is(err, fault.Unauthenticated):
				return err
			}
		}
		c.SetRequest(r.WithContext(ui.WithChrome(ctx, chrome)))
		return next(c)
	}
}

// dress fills the chrome for someone signed in.
func dress(c ui.Chrome, v Viewer, path string) ui.Chrome {
	c.OrgName, c.Email, c.Zone, c.Alert = v.OrgName, v.Email, v.Location(), v.Alert
	c.Both = v.Operator && v.Org != ids.Nil
	c.Area, c.HomePath = ui.Customer, "/"
	if v.Operator && (v.Org == ids.Nil || path == "/admin" || strings.HasPrefix(path, "/admin/")) {
		c.Area, c.HomePath, c.Zone, c.Alert = ui.Operator, "/admin", time.UTC, ""
	}
	return c
}

const themeCookie = "millrace_theme"

func themeOf(r *http.Request) string {
	k, err := r.Cookie(themeCookie)
	if err == nil && (k.Value == "light" || k.Value == "dark") {
		return k.Value
	}
	return ""
}

// Alive reports whether the request's session still holds; a database that is away does not end it.
func (g *Guard) Alive(c echo.Context) bool {
	_, err := g.o.Auth.Lookup(c.Request().Context(), g.secret(c))
	return !fault.Is(err, fault.Unauthenticated)
}
