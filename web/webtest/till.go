package webtest

import (
	"context"
	"slices"
	"time"

	"millrace/internal/fault"
	"millrace/web/admin"
	"millrace/web/session"
)

func (w *world) tillWorld() {
	event := func(n, kind, object, state string, attempts int, age time.Duration) admin.PaymentEvent {
		return admin.PaymentEvent{ID: "evt_" + n, Type: kind, Object: object, Happened: ago(age), Received: ago(age - time.Second), State: state, Attempts: attempts}
	}
	dead := event("1PZ8f2", "checkout.session.completed", "cs_live_9aK", "dead", 1, 3*time.Hour)
	dead.Problem = "conflict: The payment does not match its top-up: the sum or its currency differs."
	dead.Payload = `{"id": "evt_1PZ8f2", "type": "checkout.session.completed", "data": {"object": {"id": "cs_live_9aK"}}}`
	again := event("1PZ9c7", "charge.refunded", "ch_3PZ", "new", 4, 20*time.Minute)
	again.Problem = "unavailable: The payment provider cannot be reached. Try again in a moment."
	found := event("1PZ7aa", "payment_intent.succeeded", "pi_3PY", "done", 1, 26*time.Hour)
	found.Found = true
	w.till = admin.PaymentsState{Invoices: compared(), Waiting: []admin.PaymentEvent{dead, again},
		Recent: []admin.PaymentEvent{again, event("1PZ9b1", "payment_intent.succeeded", "pi_3PZ", "done", 1, 25*time.Minute), event("1PZ9a0", "customer.updated", "cus_Q1", "ignored", 0, time.Hour), dead, found},
		Pauses: []admin.RechargePause{{Org: id(kindOrg, 1), OrgName: "Acme Robotics", Why: "Your bank refuses this card. Give a new card.", At: ago(5 * time.Hour)}},
		Check: admin.PaymentCheck{At: ago(22 * time.Minute), Payments: 118, Missed: 1, Differences: []admin.PaymentDifference{
			{Payment: "pi_3PZ0", Topup: "top_019ad4105e0070", What: "paid $50.00, back $0.00, by the payment provider; here it is open with $9000.00, back $0.00"}}}}
}

// Payments is how it stands.
func (b business) Payments(context.Context) (admin.PaymentsState, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x := b.f.till
	x.Off = b.f.state == Fresh
	return x, nil
}

// PaymentEvent is one event.
func (b business) PaymentEvent(_ context.Context, id string) (admin.PaymentEvent, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for _, e := range slices.Concat(b.f.till.Waiting, b.f.till.Recent) {
		if e.ID == id {
			return e, nil
		}
	}
	return admin.PaymentEvent{}, errGone
}

// RetryPaymentEvent tries nothing.
func (b business) RetryPaymentEvent(_ context.Context, _ session.Viewer, id string) error {
	if e, err := b.PaymentEvent(context.Background(), id); err != nil || e.State != "dead" {
		return fault.New(fault.Conflict, "This event does not wait for a decision (any more).")
	}
	return nil
}

// DismissPaymentEvent takes the event from those that wait.
func (b business) DismissPaymentEvent(_ context.Context, _ session.Viewer, id, _ string) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.f.till.Waiting = slices.DeleteFunc(b.f.till.Waiting, func(e admin.PaymentEvent) bool { return e.ID == id })
	return nil
}
