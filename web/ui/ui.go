// Package ui holds the console's building blocks: the page layout, templ components, the formatting of money, tokens
// and times, tables that are also CSV files, server-drawn charts, form helpers, and the one place where an error becomes
// a page.
//
// It owns how things look and read. It knows nothing of where data comes from: it imports only internal leaves, and
// pages hand it plain values. Invariants: no inline style or handler (the CSP forbids them); colour is never the only
// signal; every chart has a data table; what a table shows and what its CSV holds are made from the same cells.
package ui

import (
	"context"
	"time"
)

// Area is the half of the console a page belongs to; it chooses the navigation.
type Area string

// The areas.
const (
	Signed   Area = ""         // no navigation: sign-in and error pages of strangers
	Customer Area = "customer" // an organization's own pages
	Operator Area = "operator" // the business that runs Millrace
)

// Chrome is what surrounds every page of one request. The session middleware puts it into the context.
type Chrome struct {
	Area     Area
	OrgName  string         // the organization of the person signed in; may be empty for an operator
	Email    string         // who is signed in; empty for a stranger
	Alert    string         // stands above every page of the organization, and leads to its payments; "" = nothing
	Both     bool           // the person is an operator and a member of an organization: a link switches areas
	Theme    string         // "", "light" or "dark"; empty follows the system
	Zone     *time.Location // the zone times are printed in; nil is UTC
	Now      time.Time      // the moment of the request, for ages
	Path     string         // the page's own path and query, for live refresh and return links
	HomePath string         // where the brand leads
}

type chromeKey struct{}

// WithChrome returns a context that carries c.
func WithChrome(ctx context.Context, c Chrome) context.Context {
	return context.WithValue(ctx, chromeKey{}, c)
}

// ChromeOf is the request's Chrome; the zero Chrome when there is none.
func ChromeOf(ctx context.Context) Chrome {
	c, _ := ctx.Value(chromeKey{}).(Chrome)
	return c
}

// Page describes one page to the layout.
type Page struct {
	Title  string   // the document's title, unique in the console
	Head   string   // the one h1; empty means Title
	Lead   string   // one quiet sentence under it; may be empty
	Up     *Link    // the page above this one; may be nil
	Path   string   // the navigation entry to mark, for example "/keys"
	Parts  bool     // parts of the page are fetched while it is open, also without live events
	Events []string // live events the page's parts wait for; none opens no stream
	Toast  string   // says that something worked when the page does not show it; may be empty
}

// Link is a place with a name.
type Link struct{ Href, Text string }

func (p Page) heading() string {
	if p.Head != "" {
		return p.Head
	}
	return p.Title
}
