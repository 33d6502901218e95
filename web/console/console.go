// Package console is what customers see: home, API keys, usage, requests, playground, models, billing, limits, members
// and the audit log of their organization.
//
// It owns pages and forms, not data: everything is read through Reader and changed through Writer, which are implemented
// on the domain and check every right again. All methods act inside the viewer's organization and must see no other.
// Invariants: every figure a page shows comes from one read; money is never computed here except to explain a charge
// that was already made; pages with secrets are never cached; every page works without JavaScript.
package console

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/statement"
)

// Reader gives the pages what they show. Times are instants; who.Location() is the zone days and months are cut in.
// Every error is a fault or internal; NotFound for what is not the organization's own.
type Reader interface {
	Home(ctx context.Context, who session.Viewer) (Home, error)
	Keys(ctx context.Context, who session.Viewer) ([]Key, error) // newest first, revoked and expired ones too
	Key(ctx context.Context, who session.Viewer, id ids.ID) (Key, error)
	Projects(ctx context.Context, who session.Viewer) ([]Project, error)
	Usage(ctx context.Context, who session.Viewer, q report.Query) ([]report.Cell, error)
	// Export checks what it is asked for; rows are read as the file is written.
	Export(ctx context.Context, who session.Viewer, x report.Export) (report.File, error)
	UsageAsOf(ctx context.Context, who session.Viewer) (time.Time, error) // everything older is rated; zero when unknown
	Requests(ctx context.Context, who session.Viewer, q RequestQuery) (RequestList, error)
	Request(ctx context.Context, who session.Viewer, id ids.ID) (RequestDetail, error)
	Models(ctx context.Context, who session.Viewer) ([]Model, error) // those the organization may call, by name
	Billing(ctx context.Context, who session.Viewer, after string) (Billing, error)
	Limits(ctx context.Context, who session.Viewer) (Limits, error)
	Members(ctx context.Context, who session.Viewer) ([]Member, error)
	Audit(ctx context.Context, who session.Viewer, after string) (AuditList, error)
	Statement(ctx context.Context, who session.Viewer, month report.Span) (statement.Statement, error)
	StatementDay(ctx context.Context, who session.Viewer, day time.Time, after string) (statement.Usage, error) // of a UTC day of booking
}

// Writer makes the pages' changes. Every method audits in its own transaction. Refused input is a fault.Invalid or
// fault.Conflict whose Param is the form field: name, project, cap, expires or amount.
type Writer interface {
	// CreateKey makes an API key and returns the secret, for the only time. A key with the same id is a Conflict: the
	// form was sent twice.
	CreateKey(ctx context.Context, who session.Viewer, k NewKey) (secret string, err error)
	// RevokeKey ends a key for good; revoking twice is no error.
	RevokeKey(ctx context.Context, who session.Viewer, id ids.ID) error
	// SetCap sets or removes a cap of the organization, a project or a key.
	SetCap(ctx context.Context, who session.Viewer, c CapChange) error
	// RaiseCap allows more than a hard cap for a while.
	RaiseCap(ctx context.Context, who session.Viewer, r Raise) error
	// SetLow says below which balance people and webhooks are told; 0 = not any more. The form's field is below.
	SetLow(ctx context.Context, who session.Viewer, below money.Nano) error
	// PlaygroundKey mints a short-lived key with the viewer's rights, billed like any other and marked as the
	// playground's. It need not appear in Keys.
	PlaygroundKey(ctx context.Context, who session.Viewer) (secret string, expires time.Time, err error)
}

// Deps is what the pages need.
type Deps struct {
	Read  Reader
	Write Writer
	Hooks Webhooks
	Pay   Payments
	Bills Bills
	Clock clock.Clock
	// PublicURL is where customers' programs reach the service, without a path: "https://api.acme.example".
	PublicURL string
	// Gateway calls PublicURL for the playground without JavaScript; nil is a client with a deadline.
	Gateway *http.Client
}

const wholeAnswerTimeout = 2 * time.Minute // longest the playground waits for an answer that is not streamed

type pages struct{ Deps }

// Register adds the customer's routes. The group must sit behind session's middleware; Register adds RequireOrg itself.
func Register(g *echo.Group, d Deps) {
	if d.Gateway == nil {
		d.Gateway = &http.Client{Timeout: wholeAnswerTimeout}
	}
	p := &pages{d}
	in := func(h echo.HandlerFunc) echo.HandlerFunc { return session.RequireOrg(h) }
	g.GET("/", in(p.home))
	g.GET("/palette", in(p.palette))
	g.GET("/keys", in(p.keys))
	g.POST("/keys", in(p.createKey))
	g.GET("/keys/new", in(p.newKey))
	g.GET("/keys/:id", in(p.key))
	g.GET("/keys/:id/revoke", in(p.confirmRevoke))
	g.POST("/keys/:id/revoke", in(p.revokeKey))
	g.GET("/usage", in(p.usage))
	g.GET("/usage/export", in(p.export))
	g.GET("/usage/export/file", in(p.exportFile))
	g.GET("/requests", in(p.requests))
	g.GET("/requests/:id", in(p.request))
	g.GET("/playground", in(p.playground))
	g.POST("/playground", in(p.playWhole))
	g.POST("/playground/key", in(p.playKey))
	g.POST("/playground/samples", in(p.playSamples))
	g.GET("/models", in(p.models))
	g.GET("/billing", in(p.billing))
	p.registerPay(g, in)
	p.registerBills(g, in)
	p.registerStatement(g, in)
	p.registerLimits(g, in)
	p.registerHooks(g, in)
	g.GET("/members", in(p.members))
	g.GET("/audit", in(p.audit))
}

// pathID reads an id of the path; a malformed one is a page that does not exist.
func pathID(c echo.Context, prefix string) (ids.ID, error) {
	id, err := ids.Parse(prefix, c.Param("id"))
	if err != nil {
		return ids.Nil, fault.New(fault.NotFound, "There is nothing with this id.").WithCause(err)
	}
	return id, nil
}
