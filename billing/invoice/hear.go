package invoice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"millrace/billing/inbox"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// eventTypes are the types of events that lead to anything. Every one is a hint to look at the payment provider.
var eventTypes = []string{
	"invoice.finalized", "invoice.finalization_failed", "invoice.paid", "invoice.payment_failed", "invoice.payment_action_required", "invoice.voided",
	"invoice.marked_uncollectible", "invoice.overdue", "credit_note.created", "credit_note.voided", "charge.refunded", "charge.refund.updated",
	"charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed", "charge.dispute.funds_withdrawn", "charge.dispute.funds_reinstated",
}

// EventTypes are the types that the payment provider must be asked to send.
func EventTypes() []string { return slices.Clone(eventTypes) }

// Knows is inbox.Handler's.
func (c *Collector) Knows(eventType string) bool { return slices.Contains(eventTypes, eventType) }

// eventBody is the part of an event that is believed: which thing it is about. All else is looked up.
type eventBody struct {
	Data struct {
		Object struct {
			ID       string `json:"id"`
			Object   string `json:"object"`
			Invoice  string `json:"invoice"`        // of charges and credit notes
			Payment  string `json:"payment_intent"` // of charges, refunds and disputes
			Metadata struct {
				Invoice string `json:"invoice_id"`
			} `json:"metadata"`
		} `json:"object"`
	} `json:"data"`
}

// Handle is inbox.Handler's: it looks at the payment provider now, and leaves what follows to the inbox's transaction. The
// steps that follow at the payment provider are the worker's.
func (c *Collector) Handle(ctx context.Context, e inbox.Event) (inbox.Effect, error) {
	if !c.On() {
		return inbox.Effect{}, errNoTill
	}
	var body eventBody
	if err := json.Unmarshal(e.Payload, &body); err != nil {
		return inbox.Effect{}, fault.New(fault.Conflict, "The event cannot be read.").WithCause(err)
	}
	push, err := c.whose(ctx, body)
	if errors.Is(err, pgx.ErrNoRows) {
		return inbox.Effect{}, nil // a top-up's, or another program's
	}
	if err != nil {
		return inbox.Effect{}, err
	}
	v, err := c.see(ctx, view{push: push})
	if err != nil {
		return inbox.Effect{}, err
	}
	return inbox.Effect{
		Apply: func(ctx context.Context, tx pgx.Tx) error {
			if v.seen != nil {
				if _, err := c.book(ctx, tx, push, *v.seen); err != nil {
					return err
				}
			}
			return q.New(tx).WakePush(ctx, q.WakePushParams{OrgID: push.OrgID, InvoiceID: push.InvoiceID, Now: c.s.now()})
		},
		Done: func(ctx context.Context) { c.tell(ctx, push.OrgID) },
	}, nil
}

// whose finds the invoice that an event is about; pgx.ErrNoRows = none of ours.
func (c *Collector) whose(ctx context.Context, body eventBody) (push q.InvoicePush, err error) {
	x := body.Data.Object
	ref := x.Invoice
	if x.Object == "invoice" {
		ref = x.ID
	}
	find := func() error {
		return c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
			err := pgx.ErrNoRows
			if ref != "" {
				push, err = r.PushByRef(ctx, &ref)
			}
			if id, bad := ids.Parse(ids.Invoice, x.Metadata.Invoice); errors.Is(err, pgx.ErrNoRows) && bad == nil {
				push, err = r.PushOfInvoice(ctx, id) // its answer was lost
			}
			if errors.Is(err, pgx.ErrNoRows) && x.Payment != "" {
				push, err = r.PushByPayment(ctx, &x.Payment)
			}
			return err
		})
	}
	err = find()
	if !errors.Is(err, pgx.ErrNoRows) || ref != "" || x.Payment == "" {
		return push, named("whose event", err)
	}
	if ref, err = c.c.Till.InvoiceOfPayment(ctx, x.Payment); err != nil {
		return push, err
	}
	if ref == "" {
		return push, pgx.ErrNoRows
	}
	return push, named("whose event", find())
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("invoice: %s: %w", what, err)
}
