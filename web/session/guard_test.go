package session_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/web/session"
	"millrace/web/ui"
	"millrace/web/webtest"
)

// guarded is a router with the guard's routes and one page that tells who is looking.
func guarded(t *testing.T, auth session.Auth, secure bool) *echo.Echo {
	t.Helper()
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = ui.ErrorHandler(slog.New(slog.DiscardHandler))
	g := session.New(session.Options{Auth: auth, Clock: clock.NewManual(webtest.Now), Log: slog.New(slog.DiscardHandler), Secure: secure})
	e.Use(g.Middleware()...)
	g.Register(e.Group(""))
	e.GET("/who", session.RequireOrg(func(c echo.Context) error {
		v := session.Must(c)
		return c.String(http.StatusOK, v.Email+" from "+v.Client.IP)
	}))
	return e
}

func ask(e *echo.Echo, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

func useLink(e *echo.Echo, tlsEnds bool) *http.Cookie {
	r := httptest.NewRequest(http.MethodPost, "/login/link", strings.NewReader(url.Values{"t": {webtest.Token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if tlsEnds {
		r.TLS = &tls.ConnectionState{}
	}
	return ask(e, r).Result().Cookies()[0]
}

// Behind TLS the cookie is Secure and bound to the host, whether TLS ends here or before.
func TestTheCookieIsSecureWithTLS(t *testing.T) {
	for name, c := range map[string]struct{ secure, tls bool }{"TLS ends before": {true, false}, "TLS ends here": {false, true}} {
		e := guarded(t, webtest.Start(t, webtest.Busy).Fixture, c.secure)
		k := useLink(e, c.tls)
		if k.Name != "__Host-millrace_session" || !k.Secure || !k.HttpOnly || k.Path != "/" || k.Domain != "" {
			t.Errorf("%s: %+v", name, k)
		}
		r := httptest.NewRequest(http.MethodGet, "/who", nil)
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		r.AddCookie(&http.Cookie{Name: "millrace_session", Value: webtest.Member}) // a plain cookie, planted by another host
		if w := ask(e, r); w.Code != http.StatusSeeOther {
			t.Errorf("%s: a cookie without the prefix signs in: %d", name, w.Code)
		}
		r.AddCookie(&http.Cookie{Name: k.Name, Value: k.Value})
		w := ask(e, r)
		if w.Code != http.StatusOK || w.Header().Get("Strict-Transport-Security") == "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
}

// A header that anyone can write does not say where a request comes from.
func TestForwardedAddressesAreNotBelieved(t *testing.T) {
	e := guarded(t, webtest.Start(t, webtest.Busy).Fixture, false)
	r := httptest.NewRequest(http.MethodGet, "/who", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	r.Header.Set("X-Forwarded-For", "10.0.0.1")
	r.Header.Set("X-Real-IP", "10.0.0.2")
	r.AddCookie(&http.Cookie{Name: "millrace_session", Value: webtest.Member})
	if got := ask(e, r).Body.String(); got != "dana@acme.example from 203.0.113.9" {
		t.Error(got)
	}
}

// away is an Auth whose database does not answer.
type away struct{ session.Auth }

func (away) Lookup(context.Context, string) (session.Viewer, error) {
	return session.Viewer{}, fault.New(fault.Unavailable, "The database is away.")
}

func TestADatabaseThatIsAwayDoesNotSignOut(t *testing.T) {
	e := guarded(t, away{webtest.Start(t, webtest.Busy).Fixture}, false)
	r := httptest.NewRequest(http.MethodGet, "/who", nil)
	r.AddCookie(&http.Cookie{Name: "millrace_session", Value: webtest.Member})
	w := ask(e, r)
	if w.Code != http.StatusServiceUnavailable || len(w.Result().Cookies()) != 0 {
		t.Errorf("%d, cookies %v", w.Code, w.Result().Cookies())
	}
}
