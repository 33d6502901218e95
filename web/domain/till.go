package domain

import (
	"context"

	"millrace/billing/inbox"
	"millrace/web/admin"
	"millrace/web/session"
)

// shownEvents is how many of the newest events the page lists.
const shownEvents = 30

// Payments is how it stands with the payment provider.
func (b business) Payments(ctx context.Context) (admin.PaymentsState, error) {
	by := operator(ctx)
	out := admin.PaymentsState{Off: !b.Topups.On(), Test: b.Topups.Test()}
	waiting, err := b.Inbox.Waiting(ctx, by)
	if err != nil {
		return out, err
	}
	recent, err := b.Inbox.Recent(ctx, by, shownEvents)
	if err != nil {
		return out, err
	}
	out.Waiting, out.Recent = eventsOf(waiting), eventsOf(recent)
	pauses, err := b.Topups.Pauses(ctx, by)
	if err != nil {
		return out, err
	}
	for _, p := range pauses {
		out.Pauses = append(out.Pauses, admin.RechargePause{Org: p.Org, OrgName: p.Name, Why: p.Why.Sentence(), At: p.At})
	}
	c, err := b.Topups.LastComparison(ctx, by)
	out.Check = admin.PaymentCheck{At: c.At, Payments: c.Payments, Missed: c.Missed, Problem: c.Problem}
	for _, d := range c.Differences {
		out.Check.Differences = append(out.Check.Differences, admin.PaymentDifference{Payment: d.Payment, Topup: d.Topup, What: d.What})
	}
	if err != nil {
		return out, err
	}
	out.Invoices, err = b.Collect.LastComparison(ctx, by)
	return out, err
}

func eventsOf(list []inbox.Entry) []admin.PaymentEvent {
	out := make([]admin.PaymentEvent, len(list))
	for i, e := range list {
		out[i] = eventOf(e)
	}
	return out
}

func eventOf(e inbox.Entry) admin.PaymentEvent {
	return admin.PaymentEvent{ID: e.ID, Type: e.Type, Object: e.Object, Happened: e.Created, Received: e.Received, Found: e.Source == inbox.List, State: e.State,
		Attempts: e.Attempts, Next: e.NextAt, Problem: e.Problem, DecidedBy: e.DecidedBy, Why: e.Reason, Payload: e.Payload}
}

// PaymentEvent is one event whole.
func (b business) PaymentEvent(ctx context.Context, id string) (admin.PaymentEvent, error) {
	e, err := b.Inbox.Get(ctx, operator(ctx), id)
	return eventOf(e), err
}

// RetryPaymentEvent lets a dead event be tried again.
func (b business) RetryPaymentEvent(ctx context.Context, who session.Viewer, id string) error {
	return b.Inbox.Retry(ctx, staff(who), id)
}

// DismissPaymentEvent decides that a dead event is never worked off.
func (b business) DismissPaymentEvent(ctx context.Context, who session.Viewer, id, why string) error {
	return b.Inbox.Dismiss(ctx, staff(who), id, why)
}
