// Package domain puts the console's pages on the real domain: it implements what web/session, web/console and web/admin
// ask for, with tenants, tenants/keys, billing and serving.
//
// It owns the translation between what a page shows and what the domain keeps: which figures a card is made of, which
// month a cap means, how an audit entry reads, which form field an error belongs to. It decides nothing about rights or
// money: every call carries an Actor made of the viewer, and the domain function checks it.
//
// Invariants: a member's pages act in the member's own organization only, with the member's role, even when the person is
// an operator too; months are the organization's for customers and UTC for operators; a list costs a fixed number of
// queries, however long it is.
package domain

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/hub"
	"millrace/billing/alert"
	"millrace/billing/credit"
	"millrace/billing/export"
	"millrace/billing/hook"
	"millrace/billing/inbox"
	"millrace/billing/invoice"
	"millrace/billing/margin"
	"millrace/billing/month"
	"millrace/billing/price"
	"millrace/billing/report"
	"millrace/billing/topup"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/fleet"
	"millrace/serving/recipe/store"
	"millrace/tenants"
	"millrace/tenants/keys"
	"millrace/web/admin"
	"millrace/web/capacity"
	"millrace/web/console"
	"millrace/web/pricelist"
	"millrace/web/session"
)

// Fleet is hosts and units as they are now: *hub.Hub.
type Fleet interface {
	Live() hub.Live
	JoinToken(ctx context.Context, host string, by tenants.Actor) (string, error)
	UnitLog(ctx context.Context, host, unit ids.ID, bytes int, by tenants.Actor) (string, error)
}

// Lag is how far the rater is behind: *report.Lag.
type Lag interface {
	Now() (lag time.Duration, known bool)
}

// Deps is what the pages stand on. All of it must be set, but Mails and HubURL.
type Deps struct {
	DB        *db.DB
	Tenants   *tenants.Service
	Keys      *keys.Service
	Credit    *credit.Desk
	Hooks     *hook.Service
	Alerts    *alert.Teller
	Prices    *price.Service
	Report    *report.Service
	Exports   *export.Service
	Margin    *margin.Service
	Months    *month.Service
	Invoices  *invoice.Service
	Collect   *invoice.Collector
	Topups    *topup.Service
	Inbox     *inbox.Inbox
	Lag       Lag
	Catalogue *catalogue.Catalogue
	Fleet     Fleet
	Placement *fleet.Service
	Recipes   *store.Recipes
	Clock     clock.Clock
	HubURL    string // as agents reach the hub: "https://ops.acme.example:8443"
	Mails     bool   // a mail server is set; without one sign-in links wait in the outbox
}

// Site is the pages' interfaces on the domain.
type Site struct {
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
}

// New makes a site.
func New(d Deps) Site {
	c, b := customer{&d}, business{&d}
	return Site{Auth: newAuth(&d), Customer: c, Change: c, Hooks: c, Pay: c, Bills: c, Business: b, Operate: b, Till: b, Invoices: b, Prices: storefront{&d}, Capacity: yard{&d}}
}

// LinkURL gives the address of the page that uses up a sign-in token; for "" the sign-in page. It is what tenants.New asks
// for.
func LinkURL(publicURL string) func(token string) string {
	return func(token string) string {
		if token == "" {
			return publicURL + "/login"
		}
		return publicURL + linkPath + token
	}
}

const linkPath = "/login/link?t="

// customer implements the pages of customers.
type customer struct{ *Deps }

// business implements the operator's pages.
type business struct{ *Deps }

// inOrg reads in an organization's scope. The caller has checked who asks.
func (d *Deps) inOrg(ctx context.Context, org ids.ID, fn func(r *q.Queries) error) error {
	return d.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}

// asSystem reads over all organizations. The caller has checked who asks.
func (d *Deps) asSystem(ctx context.Context, fn func(r *q.Queries) error) error {
	return d.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}

// newest is above every id that can exist.
var newest = ids.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
