// Package hooks receives what outside services tell by themselves: at present the payment provider.
//
// It owns the route, the bound on a body and the answers that make the sender try again or stop. It does not own the
// signature (billing/stripegw) nor the event (billing/inbox). Invariants: the body reaches the signature as it came; an
// event is acknowledged only after it is stored; without a configured secret nothing is accepted; nothing is redirected.
package hooks

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"millrace/billing/inbox"
	"millrace/internal/fault"
)

// StripePath is where the payment provider's endpoint must point.
const StripePath = "/hooks/stripe"

// Parser believes an event by its signature: *stripegw.Gateway.
type Parser interface {
	Parse(body []byte, signature string) (inbox.Event, error)
}

// Store keeps an event: *inbox.Inbox.
type Store interface {
	Store(ctx context.Context, from inbox.Source, e inbox.Event) (fresh bool, err error)
}

const storeLimit = 15 * time.Second

// Handler answers under /hooks/. A nil parser or store means that payments by card are off.
func Handler(p Parser, s Store) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+StripePath, func(w http.ResponseWriter, r *http.Request) {
		if err := receive(w, r, p, s); err != nil {
			f := fault.Of(err)
			slog.WarnContext(r.Context(), "hooks: an event was refused", "kind", f.Kind.String(), "cause", err)
			http.Error(w, f.Message, f.Kind.Status())
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	return mux
}

func receive(w http.ResponseWriter, r *http.Request, p Parser, s Store) error {
	if p == nil || s == nil {
		return fault.New(fault.Unavailable, "Payments by card are not set up here.").WithCode("payments_off")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, inbox.MaxPayload))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return fault.New(fault.TooLarge, "An event has at most %d bytes.", inbox.MaxPayload)
	}
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "The body broke off.")
	}
	e, err := p.Parse(body, r.Header.Get("Stripe-Signature"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeLimit)
	defer cancel()
	_, err = s.Store(ctx, inbox.Webhook, e)
	return err
}
