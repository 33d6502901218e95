package invoice

import (
	"slices"
	"time"

	"millrace/db/q"
)

// Reminders, in days since the money should have come: since an invoice is overdue, its card was declined, or its money went
// back.
const (
	remindFirst  int32 = 0
	remindAgain  int32 = 3
	remindLast   int32 = 7
	limitAfter   int32 = 14 // nothing more is used on the credit limit
	suspendAfter int32 = 30
)

// dunningSteps are in their order.
var dunningSteps = []int32{remindFirst, remindAgain, remindLast, limitAfter, suspendAfter}

// lastStep is the latest step that is due; -1 = none.
func lastStep(since, now time.Time) int32 {
	last := int32(-1)
	for _, s := range dunningSteps {
		if !now.Before(since.Add(time.Duration(s) * day24)) {
			last = s
		}
	}
	return last
}

// owed is what the customer himself left unpaid, in cents: not what the operator gave back past credit notes.
func owed(inv q.Invoice, refunded int64) int64 { return max(unpaid(inv)-refunded, 0) }

// dunnable is an invoice that is open, or that steps are in force for.
type dunnable struct {
	q.DunnedInvoicesRow
	take, drop []int32 // steps to be taken now, and to be undone
}

// restricts reports whether waiting leads to more than reminders: not for what no card could pay.
func (d *dunnable) restricts() bool { return owed(d.Invoice, d.RefundedCents) >= LeastPush }

// plan says which steps are to be taken and undone. What is to be in force follows from the invoice as it is now, so that it
// does not matter what happened since the last look.
func (d *dunnable) plan(now time.Time) {
	last := int32(-1)
	switch State(d.Invoice.State) {
	case Open:
		if last = lastStep(d.Since, now); !d.restricts() {
			last = min(last, remindLast)
		}
	case Uncollectible: // nobody is asked any more; what is restricted stays so
		d.drop = slices.DeleteFunc(slices.Clone(d.Steps), func(s int32) bool { return s >= limitAfter })
		return
	}
	for _, s := range dunningSteps {
		switch in := slices.Contains(d.Steps, s); {
		case s <= last && !in:
			d.take = append(d.take, s)
		case s > last && in:
			d.drop = append(d.drop, s)
		}
	}
}

// inForce reports whether a step holds once the plan is done.
func (d *dunnable) inForce(step int32) bool {
	return (slices.Contains(d.Steps, step) || slices.Contains(d.take, step)) && !slices.Contains(d.drop, step)
}

// lastInForce is the latest step that holds once the plan is done; -1 = none.
func (d *dunnable) lastInForce() int32 {
	for _, s := range slices.Backward(dunningSteps) {
		if d.inForce(s) {
			return s
		}
	}
	return -1
}
