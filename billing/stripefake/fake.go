// Package stripefake is the part of Stripe that Millrace uses, as an HTTP server with a memory: for tests, and for
// `millrace up`, where people try payments without an account. No money moves, and its pages say so.
//
// It owns customers, kept cards, tax ids, the portal, checkout and setup pages, payments, refunds, disputes, events and their signed delivery,
// with the API's real habits: idempotency keys, declines by card number, errors, lists, expansion. It does not own what
// Millrace makes of them, and validates parameters only as far as mistakes would show nowhere else (stripe-mock does that).
//
// Invariants: it never answers to another key than its own; an idempotency key replays its first answer, failures
// included, and is refused with other parameters; events are signed, of one API version, and kept whatever becomes of
// their delivery; everything carries livemode false.
package stripefake

import (
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"millrace/internal/clock"
)

// APIVersion is of every answer and event.
const APIVersion = "2023-10-16"

// Config of a fake.
type Config struct {
	Clock   clock.Clock
	Key     string // the API key that it answers to
	Secret  string // signs events
	PageURL string // where Pages is reached, without a slash at the end
	Saved   []byte // what Save was given last; nil = empty
	// Save keeps the memory after every change; nil = it is lost with the process.
	Save func(data []byte) error
}

// Server is the fake. It is safe for concurrent use.
type Server struct {
	cfg Config

	mu      sync.Mutex
	ahead   time.Duration // the clock was advanced by so much
	mem     memory
	keys    map[string]*answer // by idempotency key
	portals map[string]portal  // by the link's id
	faults  []*Fault
	late    []late
	feeless bool // fees are not known so far
	send    sender
	unfinal int // so many drafts do not become final
}

// memory is everything that is kept.
type memory struct {
	Customers []*customer
	Methods   []*method
	Sessions  []*session
	Intents   []*intent
	Setups    []*setupIntent
	Charges   []*charge
	Refunds   []*refund
	Disputes  []*dispute
	Events    []*event
	TaxIDs    []*taxID
	billing
}

const maxEvents = 5000 // kept

// New makes a fake. Close it when it was told to deliver events.
func New(c Config) (*Server, error) {
	s := &Server{cfg: c, keys: map[string]*answer{}, portals: map[string]portal{}}
	if len(c.Saved) > 0 {
		if err := json.Unmarshal(c.Saved, &s.mem); err != nil {
			return nil, err
		}
	}
	s.send.wake = make(chan struct{}, 1)
	return s, nil
}

// now is the fake's time. The caller holds mu.
func (s *Server) now() time.Time { return s.cfg.Clock.Now().Add(s.ahead) }

// Advance moves the fake's clock ahead: pages expire.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
	s.expire()
	s.save()
}

// save keeps the memory. The caller holds mu.
func (s *Server) save() {
	if n := len(s.mem.Events); n > maxEvents {
		s.mem.Events = s.mem.Events[n-maxEvents:]
	}
	if s.cfg.Save == nil {
		return
	}
	data, err := json.Marshal(s.mem)
	if err == nil {
		err = s.cfg.Save(data)
	}
	if err != nil {
		slog.Warn("stripefake: the memory could not be kept; test payments are lost at the next start", "cause", err)
	}
}

// newID makes an id of a kind: cus_…, pi_….
func newID(kind string) string { return kind + "_test_" + strings.ToLower(rand.Text()) }

// find gives the element with this id, or nil.
func find[T any](list []*T, id func(*T) string, want string) *T {
	for _, x := range list {
		if id(x) == want {
			return x
		}
	}
	return nil
}

// API is the API's handler, for paths under /v1/.
func (s *Server) API() http.Handler {
	mux := http.NewServeMux()
	for pattern, fn := range map[string]func(*call) *reply{
		"POST /v1/customers":                        s.createCustomer,
		"GET /v1/customers/{id}":                    s.getCustomer,
		"POST /v1/customers/{id}":                   s.updateCustomer,
		"POST /v1/checkout/sessions":                s.createSession,
		"GET /v1/checkout/sessions":                 s.listSessions,
		"GET /v1/checkout/sessions/{id}":            s.getSession,
		"POST /v1/checkout/sessions/{id}/expire":    s.expireSession,
		"POST /v1/billing_portal/sessions":          s.createPortal,
		"POST /v1/payment_intents":                  s.createIntent,
		"GET /v1/payment_intents":                   s.listIntents,
		"GET /v1/payment_intents/{id}":              s.getIntent,
		"GET /v1/payment_methods/{id}":              s.getMethod,
		"POST /v1/payment_methods/{id}/detach":      s.detachMethod,
		"POST /v1/refunds":                          s.createRefund,
		"GET /v1/disputes":                          s.listDisputes,
		"GET /v1/events":                            s.listEvents,
		"POST /v1/invoices":                         s.createInvoice,
		"GET /v1/invoices":                          s.listInvoices,
		"GET /v1/invoices/{id}":                     s.getInvoice,
		"DELETE /v1/invoices/{id}":                  s.deleteInvoice,
		"GET /v1/invoices/{id}/lines":               s.listLines,
		"POST /v1/invoices/{id}/finalize":           s.finalizeInvoice,
		"POST /v1/invoices/{id}/send":               s.sendInvoice,
		"POST /v1/invoices/{id}/pay":                s.payInvoice,
		"POST /v1/invoices/{id}/void":               s.voidInvoice,
		"POST /v1/invoices/{id}/mark_uncollectible": s.giveUpInvoice,
		"POST /v1/invoiceitems":                     s.createItem,
		"POST /v1/credit_notes":                     s.createNote,
		"GET /v1/credit_notes":                      s.listNotes,
		"GET /v1/credit_notes/{id}":                 s.getNote,
		"POST /v1/credit_notes/{id}/void":           s.voidNote,
		"GET /v1/account":                           s.getAccount,
		"GET /v1/webhook_endpoints":                 s.listEndpoints,
	} {
		mux.HandleFunc(pattern, s.handle(fn))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		failure(http.StatusNotFound, "invalid_request_error", "", "Unrecognized request URL ("+r.Method+": "+r.URL.Path+").").write(w)
	})
	return mux
}
