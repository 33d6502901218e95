package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
)

// serve answers one request with a handler behind the console's error renderer.
func serve(t *testing.T, r *http.Request, h echo.HandlerFunc) (*httptest.ResponseRecorder, string) {
	t.Helper()
	var log bytes.Buffer
	e := echo.New()
	e.HTTPErrorHandler = ErrorHandler(slog.New(slog.NewTextHandler(&log, nil)))
	e.Any("/page", h)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w, log.String()
}

func TestErrorsBecomePages(t *testing.T) {
	secret := errors.New("dial tcp 10.0.0.5:5432: password=hunter2")
	for _, c := range []struct {
		err    error
		status int
		says   string
		logged bool
	}{
		{fault.New(fault.NotFound, "There is no such key."), 404, "There is no such key.", false},
		{fault.New(fault.Forbidden, "Your role does not allow this."), 403, "Your role does not allow this.", false},
		{fault.New(fault.Limited, "Too often.").WithRetryAfter(1500 * time.Millisecond), 429, "Too often.", false},
		{fault.Wrap(secret, fault.Unavailable, "Not now."), 503, "Not now.", false},
		{fmt.Errorf("read keys: %w", secret), 500, "The error has been logged.", true},
		{echo.ErrNotFound, 404, "There is no page at this address.", false},
		{echo.ErrMethodNotAllowed, 405, "does not accept", false},
		{echo.NewHTTPError(400, secret.Error()), 400, "could not be understood", false},
		{echo.NewHTTPError(502, secret.Error()), 500, "The error has been logged.", true},
	} {
		w, log := serve(t, httptest.NewRequest(http.MethodGet, "/page", nil), func(echo.Context) error { return c.err })
		body := w.Body.String()
		if w.Code != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%v: %d %s", c.err, w.Code, body)
		}
		if strings.Contains(body, "hunter2") || strings.Contains(body, "10.0.0.5") {
			t.Errorf("%v: the page tells an internal detail", c.err)
		}
		if logged := strings.Contains(log, "hunter2"); logged != c.logged {
			t.Errorf("%v: logged %v, want %v", c.err, logged, c.logged)
		}
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v: an error page may be cached", c.err)
		}
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	w, _ := serve(t, httptest.NewRequest(http.MethodGet, "/page", nil), func(echo.Context) error {
		return fault.New(fault.Limited, "Wait.").WithRetryAfter(1500 * time.Millisecond)
	})
	if got := w.Header().Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %q, want 2", got)
	}
}

func TestStrangersAreLedToSignIn(t *testing.T) {
	stranger := func(echo.Context) error { return fault.New(fault.Unauthenticated, "Sign in.") }
	w, _ := serve(t, httptest.NewRequest(http.MethodGet, "/page?a=1&b=2", nil), stranger)
	if w.Code != 303 || w.Header().Get("Location") != "/login?next=%2Fpage%3Fa%3D1%26b%3D2" {
		t.Errorf("GET: %d to %s", w.Code, w.Header().Get("Location"))
	}
	if w, _ = serve(t, httptest.NewRequest(http.MethodPost, "/page", nil), stranger); w.Code != 401 {
		t.Errorf("POST: %d, want 401", w.Code)
	}
	part := httptest.NewRequest(http.MethodGet, "/page", nil)
	part.Header.Set("HX-Request", "true")
	if w, _ = serve(t, part, stranger); w.Code != 401 || w.Header().Get("HX-Refresh") != "true" {
		t.Errorf("a part of a page: %d %v", w.Code, w.Header())
	}
}

// A component that fails in the middle must give an error page, not half a page with status 200.
func TestAFailingPageIsNeverHalfSent(t *testing.T) {
	broken := templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, _ = io.WriteString(w, "<h1>half")
		return errors.New("broke")
	})
	w, _ := serve(t, httptest.NewRequest(http.MethodGet, "/page", nil), func(c echo.Context) error { return Render(c, http.StatusOK, broken) })
	if w.Code != 500 || strings.Contains(w.Body.String(), "half") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestSentenceKeepsBlanksAndEscapes(t *testing.T) {
	var out bytes.Buffer
	if err := Sentence("a <b> ", Text("x"), " c").Render(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != "a &lt;b&gt; x c" {
		t.Errorf("%q", out.String())
	}
}

// What fails because the client has gone is no finding.
func TestALeavingClientIsNoError(t *testing.T) {
	for name, h := range map[string]echo.HandlerFunc{
		"before the answer": func(c echo.Context) error { return c.Request().Context().Err() },
		"in the answer": func(c echo.Context) error {
			_ = c.String(http.StatusOK, "begun")
			return c.Request().Context().Err()
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, log := serve(t, httptest.NewRequest(http.MethodGet, "/page", nil).WithContext(ctx), h); log != "" {
			t.Errorf("%s: %s", name, log)
		}
	}
}
