package stripegw

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stripe/stripe-go/v76"

	"millrace/billing/inbox"
	"millrace/billing/topup"
	"millrace/internal/ids"
)

const perPage = 100

func listParams(ctx context.Context) stripe.ListParams {
	return stripe.ListParams{Context: ctx, Limit: stripe.Int64(perPage)}
}

func since(t time.Time) *stripe.RangeQueryParams {
	return &stripe.RangeQueryParams{GreaterThanOrEqual: t.Unix()}
}

// Payments visits the payments since a moment that belong to top-ups.
func (g *Gateway) Payments(ctx context.Context, from time.Time, visit func(p topup.Payment) error) error {
	p := &stripe.PaymentIntentListParams{ListParams: listParams(ctx), CreatedRange: since(from)}
	for _, part := range wanted {
		p.AddExpand("data." + part)
	}
	list := g.intents.List(p)
	for list.Next() {
		x := list.PaymentIntent()
		if _, err := ids.Parse(ids.Topup, x.Metadata[metaTopup]); err != nil {
			continue // another program's
		}
		one, err := g.payment(ctx, x)
		if err != nil {
			return err
		}
		if err := visit(one); err != nil {
			return err
		}
	}
	return translate(list.Err())
}

// Events visits the events since a moment, as a delivery would have brought them.
func (g *Gateway) Events(ctx context.Context, from time.Time, visit func(e inbox.Event) error) error {
	list := g.events.List(&stripe.EventListParams{ListParams: listParams(ctx), CreatedRange: since(from)})
	for list.Next() {
		x := list.Event()
		if x.Livemode != g.live {
			continue
		}
		raw, err := json.Marshal(map[string]any{"id": x.ID, "object": "event", "type": x.Type, "created": x.Created, "livemode": x.Livemode, "api_version": x.APIVersion,
			"data": map[string]json.RawMessage{"object": x.Data.Raw}})
		if err != nil {
			return fmt.Errorf("stripe: event %s: %w", x.ID, err)
		}
		if len(raw) > inbox.MaxPayload {
			continue
		}
		if err := visit(eventOf(x, raw)); err != nil {
			return err
		}
	}
	return translate(list.Err())
}

func eventOf(x *stripe.Event, raw []byte) inbox.Event {
	e := inbox.Event{ID: x.ID, Type: string(x.Type), Created: time.Unix(x.Created, 0).UTC(), Payload: raw}
	if id, ok := x.Data.Object["id"].(string); ok {
		e.Object = id
	}
	return e
}
