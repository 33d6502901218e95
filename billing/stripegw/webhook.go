package stripegw

import (
	"errors"
	"time"

	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/webhook"

	"millrace/billing/inbox"
	"millrace/internal/fault"
)

// tolerance is how old a signature may be: the clock must be right.
const tolerance = 5 * time.Minute

// Parse believes an event that was delivered, or says why not. body is as it came, unchanged.
func (g *Gateway) Parse(body []byte, signature string) (inbox.Event, error) {
	if len(g.webhooks) == 0 || signature == "" {
		return inbox.Event{}, errForged(nil)
	}
	var x stripe.Event
	var err error
	for _, secret := range g.webhooks {
		if secret == "" {
			continue
		}
		if x, err = webhook.ConstructEventWithTolerance(body, signature, string(secret), tolerance); err == nil || !badSignature(err) {
			break
		}
	}
	switch {
	case x.ID == "" && err == nil, badSignature(err):
		return inbox.Event{}, errForged(err)
	case err != nil: // of another API version, or not an event
		return inbox.Event{}, fault.Wrap(err, fault.Invalid, "The event cannot be read: the endpoint must send API version %s.", stripe.APIVersion)
	case x.Livemode != g.live:
		return inbox.Event{}, fault.New(fault.Invalid, "A test event at a live installation, or the other way round.").WithCode("wrong_mode")
	case x.Account != "":
		return inbox.Event{}, fault.New(fault.Invalid, "The event is about another account.").WithCode("wrong_account")
	case x.Data == nil:
		return inbox.Event{}, fault.New(fault.Invalid, "The event is about nothing.")
	}
	return eventOf(&x, body), nil
}

func errForged(cause error) error {
	f := fault.New(fault.Unauthenticated, "The signature is missing, wrong or too old.").WithCode("bad_signature")
	return f.WithCause(cause)
}

func badSignature(err error) bool {
	return errors.Is(err, webhook.ErrNoValidSignature) || errors.Is(err, webhook.ErrNotSigned) || errors.Is(err, webhook.ErrInvalidHeader) || errors.Is(err, webhook.ErrTooOld)
}
