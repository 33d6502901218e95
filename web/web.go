// Package web assembles the console: one handler with every browser route, guarded as a whole.
//
// It owns the order of middleware and which room serves which path, nothing else. It never shares a router with the
// APIs: what a browser may do (cookies, forms, pages) and what a program may do (bearer keys, JSON) stay apart.
package web

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/web/admin"
	"millrace/web/assets"
	"millrace/web/capacity"
	"millrace/web/console"
	"millrace/web/live"
	"millrace/web/pricelist"
	"millrace/web/session"
	"millrace/web/ui"
)

// Deps is what the console needs from the rest of the program.
type Deps struct {
	Auth     session.Auth
	Customer console.Reader
	Change   console.Writer
	Hooks    console.Webhooks
	Pay      console.Payments
	Bills    console.Bills
	Business admin.Reader
	Operate  admin.Writer
	Till     admin.Payments
	Invoices admin.Bills
	Prices   pricelist.Reader
	Capacity capacity.Fleet
	Live     *live.Hub
	Clock    clock.Clock
	Log      *slog.Logger
	// PublicURL is where customers' programs reach the service, without a path: "https://api.acme.example".
	PublicURL string
	// Gateway calls PublicURL for the playground without JavaScript; nil is a client with a deadline.
	Gateway *http.Client
	// Secure marks cookies Secure although TLS ends before this process.
	Secure bool
	// ClientIP says where a request comes from; nil takes the connection's address and believes no header.
	ClientIP echo.IPExtractor
}

// New makes the console's handler. It serves every path it is given; mount it at "/" behind the APIs' prefixes.
func New(d Deps) http.Handler {
	e := echo.New()
	e.IPExtractor = d.ClientIP
	if e.IPExtractor == nil {
		e.IPExtractor = echo.ExtractIPDirect()
	}
	e.HTTPErrorHandler = ui.ErrorHandler(d.Log)
	guard := session.New(session.Options{Auth: d.Auth, Clock: d.Clock, Log: d.Log, Secure: d.Secure})
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true}))
	e.Use(guard.Middleware()...)
	e.Use(operatorsHome)
	pages := e.Group("")
	guard.Register(pages)
	d.Live.Register(pages, guard.Alive)
	console.Register(pages, console.Deps{Read: d.Customer, Write: d.Change, Hooks: d.Hooks, Pay: d.Pay, Bills: d.Bills, Clock: d.Clock, PublicURL: d.PublicURL, Gateway: d.Gateway})
	capacity.Register(pages, d.Capacity)
	admin.Register(pages, admin.Deps{Read: d.Business, Write: d.Operate, Pay: d.Till, Bills: d.Invoices, Clock: d.Clock})

	mux := http.NewServeMux() // files need no guard: they hold nothing of anyone
	mux.HandleFunc(assets.Prefix, assets.ServeHTTP)
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, assets.URL("favicon.svg"), http.StatusTemporaryRedirect)
	})
	mux.Handle(pricelist.Path, pricelist.New(d.Prices, d.Clock, d.Log)) // the same for everyone, so it knows nobody
	mux.Handle("/", headAsGet(e))
	return mux
}

// headAsGet answers HEAD wherever a page answers GET; net/http leaves the body out by itself. The event stream has no end to
// wait for, and a file of an export is dear: both stay without HEAD.
func headAsGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && r.URL.Path != live.Path && !strings.HasSuffix(r.URL.Path, "/export/file") {
			r = r.Clone(r.Context()) // the server must still know what it was asked
			r.Method = http.MethodGet
		}
		next.ServeHTTP(w, r)
	})
}

// operatorsHome leads an operator who belongs to no organization from "/" to the operator's own first page.
func operatorsHome(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		v, ok := session.Of(c.Request().Context())
		if ok && v.Operator && v.Org == ids.Nil && c.Path() == "/" {
			return c.Redirect(http.StatusSeeOther, admin.Root)
		}
		return next(c)
	}
}
