package stripegw

import (
	"context"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/webhookendpoint"
)

// account is whose key it is, and the API version that Stripe answers in.
type account struct {
	id, name, country string
	charges           bool
	version           string
}

func (g *Gateway) account(ctx context.Context) (account, error) {
	x := &stripe.Account{}
	if err := g.intents.B.Call(http.MethodGet, "/v1/account", g.intents.Key, &stripe.AccountParams{Params: params(ctx, "")}, x); err != nil {
		return account{}, translate(err)
	}
	a := account{id: x.ID, country: x.Country, charges: x.ChargesEnabled}
	if x.Settings != nil && x.Settings.Dashboard != nil {
		a.name = x.Settings.Dashboard.DisplayName
	}
	if x.LastResponse != nil {
		a.version = x.LastResponse.Header.Get("Stripe-Version")
	}
	return a, nil
}

// endpoint is where Stripe sends events.
type endpoint struct {
	id, url, version string
	on               bool
	events           []string
}

func (g *Gateway) endpoints(ctx context.Context) (out []endpoint, err error) {
	list := webhookendpoint.Client{B: g.intents.B, Key: g.intents.Key}.List(&stripe.WebhookEndpointListParams{ListParams: listParams(ctx)})
	for list.Next() {
		x := list.WebhookEndpoint()
		out = append(out, endpoint{id: x.ID, url: x.URL, version: x.APIVersion, on: x.Status == "enabled", events: x.EnabledEvents})
	}
	return out, translate(list.Err())
}

// undelivered counts the events since a moment that some endpoint did not take, at most a page of them.
func (g *Gateway) undelivered(ctx context.Context, from time.Time) (n int, err error) {
	p := &stripe.EventListParams{ListParams: listParams(ctx), CreatedRange: since(from), DeliverySuccess: stripe.Bool(false)}
	p.Single = true
	list := g.events.List(p)
	for list.Next() {
		n++
	}
	return n, translate(list.Err())
}
