package ui

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
)

// Render writes a component as a whole answer. It is drawn to memory first, so that a page that fails while being
// drawn becomes an error page and never half a page.
func Render(c echo.Context, status int, body templ.Component) error {
	var buf bytes.Buffer
	if err := body.Render(c.Request().Context(), &buf); err != nil {
		return err
	}
	return c.HTMLBlob(status, buf.Bytes())
}

// CSV writes a grid as a file to download.
func CSV(c echo.Context, name string, g Grid) error {
	var buf bytes.Buffer
	if err := g.WriteCSV(&buf); err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentDisposition, `attachment; filename="`+name+`.csv"`)
	return c.Blob(http.StatusOK, "text/csv; charset=utf-8", buf.Bytes())
}

// NoStore keeps a page with a secret out of every cache, the browser's back list included.
func NoStore(c echo.Context) {
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
}

// ErrorHandler is the console's one renderer of errors. Strangers asking for a page go to the sign-in page; everyone
// else sees the fault's public message. Internal errors are logged with their cause.
func ErrorHandler(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		ctx, level := c.Request().Context(), slog.LevelError
		if ctx.Err() != nil {
			level = slog.LevelDebug // the client has gone: whatever failed afterwards is no finding
		}
		if c.Response().Committed {
			log.Log(ctx, level, "page broke off", "path", c.Request().URL.Path, "err", err)
			return
		}
		f := faultOf(err)
		if f.Kind == fault.Internal || f.Kind == fault.Upstream {
			log.Log(ctx, level, "page failed", "method", c.Request().Method, "path", c.Request().URL.Path, "err", err)
		}
		if err := answerFault(c, f); err != nil && !c.Response().Committed { // after that the client is gone: nothing to tell
			log.Log(ctx, level, "error page failed", "err", err)
			_ = c.String(http.StatusInternalServerError, "Something went wrong on our side.")
		}
	}
}

func answerFault(c echo.Context, f *fault.Fault) error {
	NoStore(c)
	if f.RetryAfter > 0 {
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(int(f.RetryAfter.Seconds()+.999)))
	}
	r := c.Request()
	if f.Kind == fault.Unauthenticated {
		if r.Header.Get("HX-Request") != "" {
			c.Response().Header().Set("HX-Refresh", "true")
			return c.NoContent(http.StatusUnauthorized)
		}
		if r.Method == http.MethodGet {
			return c.Redirect(http.StatusSeeOther, "/login?next="+url.QueryEscape(r.URL.RequestURI()))
		}
	}
	return Render(c, f.Kind.Status(), errorPage(f))
}

// faultOf understands the router's own errors beside faults.
func faultOf(err error) *fault.Fault {
	var he *echo.HTTPError
	if !errors.As(err, &he) {
		return fault.Of(err)
	}
	switch he.Code {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "There is no page at this address.")
	case http.StatusMethodNotAllowed:
		return fault.New(fault.Method, "This address does not accept that kind of request.")
	case http.StatusRequestEntityTooLarge:
		return fault.New(fault.TooLarge, "What was sent is too large.")
	case http.StatusForbidden:
		return fault.New(fault.Forbidden, "This request was refused because it came from another site.")
	}
	if he.Code < 500 {
		return fault.New(fault.Invalid, "The request could not be understood.").WithCause(err)
	}
	return fault.Of(err)
}

// errorTitle says in a few words what happened, by kind.
func errorTitle(k fault.Kind) string {
	switch k {
	case fault.NotFound:
		return "Not found"
	case fault.Forbidden:
		return "Not allowed"
	case fault.Unauthenticated:
		return "Please sign in"
	case fault.OutOfCredit:
		return "Not enough credit"
	case fault.Conflict:
		return "This has changed meanwhile"
	case fault.Limited:
		return "Too many attempts"
	case fault.Unavailable, fault.Timeout, fault.Upstream:
		return "Not available right now"
	case fault.Internal:
		return "Something went wrong"
	}
	return "This did not work"
}
