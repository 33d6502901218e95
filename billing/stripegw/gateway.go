// Package stripegw speaks to Stripe for billing/topup. It is the only room that knows stripe-go, so that its version can
// move without the rest.
//
// It owns the translation of objects, events and errors, the signature of events, and the pace of requests. It does not own
// what anything means for a customer's credit.
//
// Invariants: the API's version is pinned (2023-10-16), and an event of another version is refused, because it would be
// read wrongly without an error; no secret is empty, and none is ever printed; every change carries the caller's
// idempotency key; a test key never meets a live event, nor the other way round.
package stripegw

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stripe/stripe-go/v76"
	portal "github.com/stripe/stripe-go/v76/billingportal/session"
	checkout "github.com/stripe/stripe-go/v76/checkout/session"
	"github.com/stripe/stripe-go/v76/customer"
	"github.com/stripe/stripe-go/v76/dispute"
	"github.com/stripe/stripe-go/v76/event"
	"github.com/stripe/stripe-go/v76/paymentintent"
	"github.com/stripe/stripe-go/v76/paymentmethod"

	"millrace/billing/topup"
	"millrace/internal/ids"
)

// Secret is a text that is never printed.
type Secret string

// String hides it, also from %v and %s.
func (Secret) String() string { return "(secret)" }

// GoString hides it from %#v.
func (Secret) GoString() string { return "(secret)" }

// LogValue hides it from the log.
func (Secret) LogValue() slog.Value { return slog.StringValue("(secret)") }

// MarshalText hides it from JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// Config of a Gateway.
type Config struct {
	Key      Secret   // sk_test_…, sk_live_…, rk_test_… or rk_live_…
	Webhooks []Secret // that sign events: the present one, and the one before it while it is changed; at least one
	URL      string   // of the API; "" = Stripe's
	Pace     int      // requests a second at most; 0 = what Stripe lets a test account do
}

// Bounds of requests.
const (
	requestLimit = 30 * time.Second
	standardPace = 20 // requests a second: Stripe allows a test account 25
	netRetries   = 2
)

// Gateway is a topup.Gateway. It is safe for concurrent use.
type Gateway struct {
	live     bool
	webhooks []Secret
	pace     *pace

	customers customer.Client
	checkouts checkout.Client
	portals   portal.Client
	intents   paymentintent.Client
	methods   paymentmethod.Client
	disputes  dispute.Client
	events    event.Client
}

var _ topup.Gateway = (*Gateway)(nil)

// New makes a gateway, or refuses a configuration that could charge nobody or believe anybody.
func New(c Config) (*Gateway, error) {
	live, err := liveKey(string(c.Key))
	if err != nil {
		return nil, err
	}
	if err := checkSecrets(c.Webhooks); err != nil {
		return nil, err
	}
	p := &pace{perSecond: c.Pace}
	if p.perSecond <= 0 {
		p.perSecond = standardPace
	}
	backend := &stripe.BackendConfig{EnableTelemetry: stripe.Bool(false), MaxNetworkRetries: stripe.Int64(netRetries), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
		HTTPClient: &http.Client{Timeout: requestLimit, Transport: paced{p}}}
	if c.URL != "" {
		backend.URL = stripe.String(c.URL)
	}
	b, key := stripe.GetBackendWithConfig(stripe.APIBackend, backend), string(c.Key)
	return &Gateway{live: live, webhooks: c.Webhooks, pace: p,
		customers: customer.Client{B: b, Key: key}, checkouts: checkout.Client{B: b, Key: key}, portals: portal.Client{B: b, Key: key},
		intents: paymentintent.Client{B: b, Key: key}, methods: paymentmethod.Client{B: b, Key: key}, disputes: dispute.Client{B: b, Key: key},
		events: event.Client{B: b, Key: key}}, nil
}

func liveKey(key string) (live bool, err error) {
	for _, kind := range []string{"sk_", "rk_"} {
		switch {
		case len(key) < minKey:
		case strings.HasPrefix(key, kind+"live_"):
			return true, nil
		case strings.HasPrefix(key, kind+"test_"):
			return false, nil
		}
	}
	return false, errors.New("the Stripe key must be a secret or restricted key: sk_test_…, sk_live_…, rk_test_… or rk_live_…")
}

const (
	minKey    = 16 // characters
	minSecret = 16
)

func checkSecrets(secrets []Secret) error {
	if len(secrets) == 0 {
		return errors.New("no webhook secret: Stripe's events could not be told from forged ones")
	}
	for _, s := range secrets {
		if len(s) < minSecret || strings.TrimSpace(string(s)) != string(s) {
			return errors.New("a webhook secret is empty or too short: it begins with whsec_ and stands beside the endpoint in Stripe's pages")
		}
	}
	return nil
}

// Test reports that no money moves.
func (g *Gateway) Test() bool { return !g.live }

// params are what every request carries.
func params(ctx context.Context, key string) stripe.Params {
	p := stripe.Params{Context: ctx}
	if key != "" {
		p.SetIdempotencyKey(key)
	}
	return p
}

// CreateCustomer makes an organization known; asked twice on a day it is the same one.
func (g *Gateway) CreateCustomer(ctx context.Context, c topup.NewCustomer) (string, error) {
	org := ids.Format(ids.Org, c.Org)
	p := &stripe.CustomerParams{Name: stripe.String(c.Name)}
	p.AddMetadata("org_id", org)
	if c.Email != "" {
		p.Email = stripe.String(c.Email)
	}
	for try := 1; ; try++ {
		p.Params.Context = ctx
		p.SetIdempotencyKey("customer:" + org + ":" + c.After + strings.Repeat("+", try-1))
		x, err := g.customers.New(p)
		var e *stripe.Error
		switch {
		case err == nil:
			return x.ID, nil
		case errors.As(err, &e) && replayed(e) && try < maxReplays: // an earlier failure, for a day; a customer too many does no harm
			continue
		}
		return "", translate(err)
	}
}

// maxReplays is how many failures that are only repeated are gone around.
const maxReplays = 5

// Forget removes a kept card.
func (g *Gateway) Forget(ctx context.Context, method string) error {
	_, err := g.methods.Detach(method, &stripe.PaymentMethodDetachParams{Params: params(ctx, "")})
	return translate(err)
}

// Portal makes a page with receipts, cards and tax ids, as the account's settings of the portal say.
func (g *Gateway) Portal(ctx context.Context, customer, back string) (string, error) {
	x, err := g.portals.New(&stripe.BillingPortalSessionParams{Params: params(ctx, ""), Customer: stripe.String(customer), ReturnURL: stripe.String(back)})
	if err != nil {
		return "", translate(err)
	}
	return x.URL, nil
}

// pace keeps requests apart, as Stripe asks; after a quiet second a second's worth need not wait.
type pace struct {
	perSecond int

	mu   sync.Mutex
	next time.Time
}

func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	now := time.Now() // not the domain's clock: this is about the network
	if earliest := now.Add(-time.Second); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(time.Second / time.Duration(p.perSecond))
	pause := p.next.Sub(now)
	p.mu.Unlock()
	if pause <= 0 {
		return nil
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

type paced struct{ *pace }

// RoundTrip waits its turn.
func (p paced) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := p.wait(r.Context()); err != nil {
		return nil, fmt.Errorf("waiting for a turn: %w", err)
	}
	return http.DefaultTransport.RoundTrip(r)
}
