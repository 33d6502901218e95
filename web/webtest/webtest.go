// Package webtest runs the console on invented, unchanging data, for golden pages, screenshots and checks in a browser.
//
// It owns a fixture that implements every interface the pages read and write through, in memory: what a page changes,
// the next page shows. It also finds and drives a browser. It is imported by tests and by the screenshots of the
// documentation only; nothing in it decides how the real domain behaves.
package webtest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/web"
	"millrace/web/live"
)

// Now is the fixture's moment: a Monday afternoon in Berlin, the last day of a month.
var Now = time.Date(2026, time.November, 30, 13, 40, 0, 0, time.UTC)

// State is how much has happened in the fixture.
type State int

// The states.
const (
	Busy  State = iota // a running business
	Fresh              // just installed: no customers' keys, no credit, nothing served
)

// Site is a running console on a fixture.
type Site struct {
	URL     string
	Fixture *Fixture
	Live    *live.Hub
	server  *httptest.Server
}

// Start runs the console until the test ends. Every request it logs as an error fails the test.
func Start(t testing.TB, s State) *Site {
	t.Helper()
	site := &Site{Fixture: newFixture(s), Live: live.NewHub()}
	mux := http.NewServeMux()
	site.server = httptest.NewServer(mux)
	site.URL = site.server.URL
	mux.HandleFunc("POST /v1/chat/completions", site.Fixture.chat)
	mux.Handle("/", web.New(web.Deps{
		Auth: site.Fixture, Customer: site.Fixture, Change: site.Fixture, Hooks: site.Fixture, Pay: site.Fixture, Bills: site.Fixture, Business: business{site.Fixture}, Operate: business{site.Fixture}, Till: business{site.Fixture}, Invoices: business{site.Fixture}, Prices: site.Fixture, Capacity: yard{site.Fixture},
		Live: site.Live, Clock: clock.NewManual(Now), Log: slog.New(failing{t, slog.DiscardHandler}), PublicURL: site.URL,
	}))
	t.Cleanup(func() {
		site.Live.Close()
		site.server.Close()
	})
	return site
}

// Client is a browser without JavaScript: it keeps cookies and follows no redirect.
func (s *Site) Client(cookie string) *http.Client {
	return &http.Client{
		Transport:     withCookie{cookie},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       requestTimeout,
	}
}

const requestTimeout = 10 * time.Second

type withCookie struct{ value string }

func (c withCookie) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if c.value != "" {
		r.AddCookie(&http.Cookie{Name: "millrace_session", Value: c.value})
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Fixture holds the invented data. Its methods are in the files of each side.
type Fixture struct {
	mu    sync.Mutex
	state State
	world
	used map[string]bool // sign-in tokens
	out  map[string]bool // sessions signed out
}

// id is the n-th id of a kind: a UUIDv7 that never changes.
func id(kind byte, n int) ids.ID {
	out := ids.ID{0x01, 0x9a, 0xd4, 0x10, 0x5e, 0x00, 0x70, kind, 0x80}
	out[14], out[15] = byte(n>>8), byte(n)
	return out
}
