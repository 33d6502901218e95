package topup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/billing/inbox"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// about says which kind of thing an event is about.
type about int

const (
	aboutSession about = iota + 1
	aboutPayment
	aboutCharge // and disputes: they name their payment
	aboutMethod
)

// handled are the types of events that lead to anything. Every one is a hint to look at the payment provider.
var handled = map[string]about{
	"checkout.session.completed": aboutSession, "checkout.session.async_payment_succeeded": aboutSession,
	"checkout.session.async_payment_failed": aboutSession, "checkout.session.expired": aboutSession,
	"payment_intent.succeeded": aboutPayment, "payment_intent.payment_failed": aboutPayment, "payment_intent.canceled": aboutPayment,
	"payment_intent.requires_action": aboutPayment, "payment_intent.processing": aboutPayment,
	"charge.refunded": aboutCharge, "charge.refund.updated": aboutCharge, "charge.dispute.created": aboutCharge, "charge.dispute.updated": aboutCharge,
	"charge.dispute.closed": aboutCharge, "charge.dispute.funds_withdrawn": aboutCharge, "charge.dispute.funds_reinstated": aboutCharge,
	"payment_method.detached": aboutMethod,
}

// Knows is inbox.Handler's.
func (s *Service) Knows(eventType string) bool { return handled[eventType] != 0 }

// eventBody is the part of an event that is believed: which thing it is about. All else is looked up.
type eventBody struct {
	Data struct {
		Object struct {
			ID            string `json:"id"`
			Object        string `json:"object"`
			PaymentIntent string `json:"payment_intent"`
			Mode          string `json:"mode"`
			Customer      string `json:"customer"`
			Reference     string `json:"client_reference_id"`
			Metadata      struct {
				Topup string `json:"topup_id"`
			} `json:"metadata"`
		} `json:"object"`
	} `json:"data"`
}

// Handle is inbox.Handler's: it looks at the payment provider now, and leaves what follows to the inbox's transaction.
func (s *Service) Handle(ctx context.Context, e inbox.Event) (inbox.Effect, error) {
	if !s.On() {
		return inbox.Effect{}, errOff
	}
	var body eventBody
	if err := json.Unmarshal(e.Payload, &body); err != nil {
		return inbox.Effect{}, fault.New(fault.Conflict, "The event cannot be read.").WithCause(err)
	}
	x := body.Data.Object
	switch handled[e.Type] {
	case aboutSession:
		if x.Mode == "setup" {
			return s.handleSetup(ctx, x.ID)
		}
		return s.handleTopup(ctx, x.Reference, "")
	case aboutPayment:
		return s.handleTopup(ctx, x.Metadata.Topup, x.ID)
	case aboutCharge:
		return s.handleTopup(ctx, "", x.PaymentIntent)
	case aboutMethod:
		return s.handleDetached(ctx, x.ID)
	}
	return inbox.Effect{}, nil
}

// handleTopup finds the top-up by its id or by its payment. What is no top-up's is not ours: nothing follows.
func (s *Service) handleTopup(ctx context.Context, topup, payment string) (inbox.Effect, error) {
	var t q.Topup
	err := s.system(ctx, func(_ pgx.Tx, r *q.Queries) (err error) {
		id, bad := ids.Parse(ids.Topup, topup)
		switch {
		case bad == nil:
			t, err = r.TopupByID(ctx, id)
		case payment != "":
			t, err = r.TopupByPayment(ctx, &payment)
		default:
			return fault.New(fault.NotFound, "The event names no top-up.")
		}
		return found(err, "top-up")
	})
	if fault.Is(err, fault.NotFound) && topup == "" && payment != "" {
		return s.handleUnknownPayment(ctx, payment)
	}
	if fault.Is(err, fault.NotFound) {
		return inbox.Effect{}, nil
	}
	if err != nil {
		return inbox.Effect{}, err
	}
	return s.effect(ctx, t, payment)
}

// handleUnknownPayment asks whose payment it is: a refund may be heard of before the payment itself.
func (s *Service) handleUnknownPayment(ctx context.Context, payment string) (inbox.Effect, error) {
	p, err := s.c.Gateway.Payment(ctx, payment)
	if fault.Is(err, fault.NotFound) || err == nil && p.Topup == ids.Nil {
		return inbox.Effect{}, nil
	}
	if err != nil {
		return inbox.Effect{}, err
	}
	return s.handleTopup(ctx, ids.Format(ids.Topup, p.Topup), payment)
}

func (s *Service) effect(ctx context.Context, t q.Topup, payment string) (inbox.Effect, error) {
	next, err := s.look(ctx, t, payment)
	if err != nil {
		return inbox.Effect{}, err
	}
	return inbox.Effect{
		Apply: func(ctx context.Context, tx pgx.Tx) error { return s.apply(ctx, tx, t, next) },
		Done:  func(ctx context.Context) { s.tell(ctx, t, next) },
	}, nil
}

// handleSetup keeps the card of a page that a person did not come back from.
func (s *Service) handleSetup(ctx context.Context, session string) (inbox.Effect, error) {
	x, err := s.c.Gateway.Session(ctx, session)
	if err != nil {
		return inbox.Effect{}, err
	}
	return inbox.Effect{Apply: func(ctx context.Context, tx pgx.Tx) error {
		org, err := q.New(tx).OrgOfPaymentCustomer(ctx, x.Customer)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // another program's, or of a customer that was made anew since
		}
		if err != nil {
			return fmt.Errorf("topup: whose card: %w", err)
		}
		return s.endSetup(ctx, tx, org, x)
	}}, nil
}

// handleDetached forgets a card that was removed at the payment provider, and tells people that nothing is charged any more.
func (s *Service) handleDetached(_ context.Context, method string) (inbox.Effect, error) {
	return inbox.Effect{Apply: func(ctx context.Context, tx pgx.Tx) error {
		org, err := q.New(tx).OrgOfPaymentMethod(ctx, method)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // forgotten already, or never kept
		}
		if err != nil {
			return fmt.Errorf("topup: whose card: %w", err)
		}
		dropped, err := s.drop(ctx, tx, tenants.System(), org, method)
		if err != nil || !dropped {
			return err
		}
		return s.pause(ctx, tx, org, PauseNoCard)
	}}, nil
}
