// Package pricelist is the public page of prices: what every model costs in the standard book, for anyone, without signing
// in. It owns the page and how long it is kept; the facts come from a Reader.
//
// Invariants: the page is the same for everyone, so caches may keep it, and however often it is asked for, the Reader is
// asked at most once in Fresh.
package pricelist

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"millrace/internal/clock"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// Path of the page.
const Path = "/prices"

const (
	// Fresh is how long the page is kept, here and by caches: a new price shows within a minute.
	Fresh       = 30 * time.Second
	readTimeout = 5 * time.Second
	// retryAfter is how long a failure stands before the Reader is asked again.
	retryAfter = 5 * time.Second
)

// Model is a model on sale.
type Model struct {
	Name      string
	Context   int64 // tokens
	MaxOutput int64 // tokens
	Simulated bool
	Prices    usage.Prices
	Terms     ui.PriceTerms
	Since     time.Time
	Next      *Ahead // nil = nothing is planned
}

// Ahead is a published change that is not in force yet.
type Ahead struct {
	Prices    usage.Prices
	Effective time.Time
}

// Reader gives the models that have a standard price now, by name.
type Reader interface {
	PublicPrices(ctx context.Context) ([]Model, error)
}

// New makes the page's handler.
func New(read Reader, c clock.Clock, log *slog.Logger) http.Handler {
	return &handler{read: read, clock: c, log: log}
}

type handler struct {
	read  Reader
	clock clock.Clock
	log   *slog.Logger

	mu   sync.Mutex
	page []byte
	made time.Time

	err    error // of the last reading, when it failed
	failed time.Time
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Referrer-Policy", "same-origin")
	head.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "This page can only be read.", http.StatusMethodNotAllowed)
		return
	}
	page, err := h.fresh(r.Context())
	if err != nil {
		if r.Context().Err() == nil {
			h.log.ErrorContext(r.Context(), "the price page failed", "err", err)
		}
		head.Set("Cache-Control", "no-store")
		head.Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
		http.Error(w, "The prices cannot be read just now. Try again in a moment.", http.StatusServiceUnavailable)
		return
	}
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(Fresh/time.Second)))
	head.Set("Content-Length", strconv.Itoa(len(page)))
	_, _ = w.Write(page) // a failed write means that the reader has gone
}

// fresh gives the page, drawn at most once in Fresh. While it is drawn, others wait for it.
func (h *handler) fresh(ctx context.Context) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	switch {
	case h.page != nil && now.Sub(h.made) < Fresh:
		return h.page, nil
	case h.err != nil && now.Sub(h.failed) < retryAfter: // a database that is away is not asked by everyone who waits
		return nil, h.err
	}
	page, err := h.draw(ctx, now)
	if h.err = err; err != nil {
		h.failed = now
		return nil, err
	}
	h.page, h.made = page, now
	return page, nil
}

func (h *handler) draw(ctx context.Context, now time.Time) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // it is drawn for all who wait
	defer cancel()
	models, err := h.read.PublicPrices(ctx)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	ctx = ui.WithChrome(ctx, ui.Chrome{Now: now, Path: Path, HomePath: "/"})
	if err := page(models, grid(models), now).Render(ctx, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// grid has a row for every model, and one for every step of its prices.
func grid(models []Model) ui.Grid {
	g := ui.Grid{Caption: "Prices in dollars per 1M tokens", Cards: true,
		Columns: []ui.Column{{Name: "Model"}, {Name: "Context", Num: true}},
		Empty:   ui.Blank{Icon: "tags", Title: "No prices yet", Text: "No model is on sale at the moment."}}
	var lists []usage.Prices
	for _, m := range models {
		lists = append(lists, m.Prices)
		for _, s := range m.Terms.Steps {
			lists = append(lists, s.Prices)
		}
	}
	classes := ui.ClassesWithPrices(lists...)
	for _, c := range classes {
		g.Columns = append(g.Columns, ui.Column{Name: ui.ClassName(c), Num: true})
	}
	for _, m := range models {
		first := ui.N(modelName(m), m.Name)
		if len(m.Terms.Steps) > 0 {
			first = first.WithSub("prompts up to " + ui.FormatCount(m.Terms.Steps[0].Above) + " tokens")
		}
		g.Rows = append(g.Rows, ui.PriceRow(ui.Row{first, ui.Tok(m.Context)}, m.Prices, classes))
		for _, s := range m.Terms.Steps {
			g.Rows = append(g.Rows, ui.PriceRow(ui.Row{ui.T(m.Name).WithSub(ui.Above(s.Above)), ui.Tok(m.Context)}, s.Prices, classes))
		}
	}
	return g
}

// lines says what the prices depend on, and what changes.
func (m *Model) lines() []string {
	lines := m.Terms.Lines()
	if m.Next != nil {
		lines = append(lines, "From "+m.Next.Effective.UTC().Format("2 January 2006 15:04 UTC")+": input "+ui.FormatPerMillion(m.Next.Prices[usage.Input])+
			", output "+ui.FormatPerMillion(m.Next.Prices[usage.Output])+" per 1M tokens")
	}
	return lines
}
