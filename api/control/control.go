// Package control is the REST API of operators' programs, /api/v1, as openapi.yaml describes it. It owns the shape of
// requests and answers, their strict reading, paging and the bearer check; it decides nothing: every operation is one call
// of a domain function, which checks the actor again and audits its change.
//
// Words: a route is a method on a path; an operator's program is known by its control token.
//
// Invariants: openapi.yaml and the routes are the same thing, field by field (a test compares them); an unknown field or
// parameter is an error, never ignored; money is a decimal string of USD beside integer nano-USD; ids carry their prefix;
// a secret is answered once, by the request that made it; what a retry could double takes an Idempotency-Key.
package control

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/api/problem"
	"millrace/internal/clock"
)

// Root is where the API is mounted.
const Root = "/api/v1"

// Limits of a request.
const (
	maxBodyBytes   = 256 << 10
	requestTimeout = 30 * time.Second
	longTimeout    = 10 * time.Minute // reconcile reads everything up to its watermark
	exportTimeout  = 2 * time.Hour    // of a download
)

// Deps is what the API stands on. All of it must be set.
type Deps struct {
	Tenants   Tenants
	Keys      Keys
	Credit    Credit
	Hooks     Hooks
	Alerts    Alerts
	Prices    Prices
	Catalogue Catalogue
	Recipes   Recipes
	Placement Placement
	Fleet     Fleet
	Books     Books
	Exports   Exports
	Invoices  Invoices
	Months    Months
	System    System
	Clock     clock.Clock
}

type api struct{ Deps }

// New makes the handler of everything under Root.
func New(d Deps) http.Handler {
	a := &api{d}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	// Forwarded headers are the client's word: never believed here.
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if !c.Response().Committed {
			problem.JSON(c.Response(), c.Request(), err)
		}
	}
	e.Pre(headers)
	for _, r := range a.routes() {
		e.Add(r.method, Root+echoPath(r.path), a.serve(r))
	}
	return e
}

// headers are on every answer: it is for one caller, now.
func headers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Set("Cache-Control", "no-store")
		problem.RequestID(c.Response())
		return next(c)
	}
}
