// Package session signs people in and out of the console and guards every browser route.
//
// It owns the session cookie, the one-time sign-in link, the sign-in pages, the security headers with a strict content
// policy, the refusal of cross-site requests, and the Viewer that handlers act for. It does not own people or sessions:
// an Auth, implemented on tenants, does. Invariants: a link is used up only by a POST that a person made, so that mail
// scanners cannot; the answer to asking for a link never tells whether an address is known; a token or cookie is never
// logged; pages with secrets are never cached.
package session

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Auth knows people and their sessions. Tokens and cookies are secrets: an implementation stores only their hashes.
type Auth interface {
	// Exchange uses up a one-time sign-in token and opens a session. Unauthenticated when the token is unknown, expired
	// or used.
	Exchange(ctx context.Context, token string, from Client) (Session, error)
	// Lookup finds who a session cookie belongs to. Unauthenticated when it is unknown, expired or signed out.
	Lookup(ctx context.Context, secret string) (Viewer, error)
	// SignOut ends the session; unknown secrets are no error.
	SignOut(ctx context.Context, secret string) error
	// RequestLink sends a sign-in link to an address if it is known. It returns nil for unknown addresses too, in about
	// the same time; Limited when an address or a client asks too often.
	RequestLink(ctx context.Context, email string, from Client) error
}

// Client says where a request came from, for the audit log and abuse limits.
type Client struct {
	IP        string
	UserAgent string // at most 300 bytes
}

// Session is a session just opened.
type Session struct {
	Secret   string    // the cookie's value
	Expires  time.Time // the cookie ends then
	Operator bool      // the person starts in the operator's console
}

// Viewer is who a request acts for.
type Viewer struct {
	User     ids.ID
	Email    string
	Name     string // may be empty
	Operator bool   // may use the operator's console
	Org      ids.ID // the organization the person acts for; ids.Nil for an operator who belongs to none
	OrgName  string
	Role     string         // in the organization: owner, admin, developer, billing or viewer
	Zone     *time.Location // times are printed in it and caps reset in it; nil is UTC
	May      Perm           // what the role allows inside the organization
	Alert    string         // what must be seen on every page of the organization; "" = nothing
	Client   Client         // filled in by the middleware
}

// Perm is a set of rights inside an organization. The domain checks them again; pages use them to offer only what works.
type Perm uint8

// The rights.
const (
	PermKeys    Perm = 1 << iota // create and revoke API keys, use the playground
	PermCaps                     // set monthly caps
	PermBilling                  // pay: top-ups, cards, auto-recharge
)

// Has reports whether all rights in q are held.
func (p Perm) Has(q Perm) bool { return p&q == q }

// Location is the viewer's zone, never nil.
func (v Viewer) Location() *time.Location {
	if v.Zone == nil {
		return time.UTC
	}
	return v.Zone
}

// Options configure the browser side.
type Options struct {
	Auth   Auth
	Clock  clock.Clock
	Log    *slog.Logger
	Secure bool // cookies are Secure although TLS ends before this process
}

// Guard is the configured middleware and its handlers.
type Guard struct {
	o    Options
	csrf *http.CrossOriginProtection
}

// New makes a Guard.
func New(o Options) *Guard {
	return &Guard{o: o, csrf: http.NewCrossOriginProtection()}
}

type viewerKey struct{}

// Of is who the request acts for; ok is false for a stranger.
func Of(ctx context.Context) (v Viewer, ok bool) {
	v, ok = ctx.Value(viewerKey{}).(Viewer)
	return v, ok
}

// Must is the viewer of a request that passed RequireOrg or RequireOperator.
func Must(c echo.Context) Viewer {
	v, ok := Of(c.Request().Context())
	if !ok {
		panic("session: handler outside a guarded group")
	}
	return v
}

// RequireOrg lets only members of an organization through.
func RequireOrg(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		switch v, ok := Of(c.Request().Context()); {
		case !ok:
			return errSignIn
		case v.Org == ids.Nil:
			return fault.New(fault.Forbidden, "You do not belong to an organization. The operator's pages are under /admin.")
		}
		return next(c)
	}
}

// RequireOperator lets only operators through. To everyone else the operator's pages do not exist.
func RequireOperator(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		switch v, ok := Of(c.Request().Context()); {
		case !ok:
			return errSignIn
		case !v.Operator:
			return fault.New(fault.NotFound, "There is no page at this address.")
		}
		return next(c)
	}
}

var errSignIn = fault.New(fault.Unauthenticated, "Sign in to see this page.")

// Allow refuses a viewer without the right.
func (v Viewer) Allow(p Perm) error {
	if v.May.Has(p) {
		return nil
	}
	return fault.New(fault.Forbidden, "Your role (%s) does not allow this. An owner or admin of the organization can do it.", v.Role)
}

const maxUserAgent = 300 // bytes kept of a browser's name

func clientOf(c echo.Context) Client {
	ua := strings.ToValidUTF8(c.Request().UserAgent(), "")
	if len(ua) > maxUserAgent {
		ua = strings.ToValidUTF8(ua[:maxUserAgent], "")
	}
	return Client{IP: c.RealIP(), UserAgent: ua}
}
