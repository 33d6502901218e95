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

// dunning is what is due about one organization.
type dunning struct {
	now  time.Time
	list []*dunnable
	was  q.DunnedOrgRow
	next held
}

// held is an organization's credit limit and suspension, and what of them dunning did.
type held struct {
	limit          int64
	goBack         *int64     // the limit once nothing is due; nil = it is not reduced
	suspended, our *time.Time // our: the suspension that dunning made
}

// limitDecided reports whether an operator set the limit since dunning did.
func limitDecided(o q.DunnedOrgRow) bool {
	return o.SetNano != nil && (o.CreditLimitNano != *o.SetNano || o.LimitsSet != o.LimitsSetNow)
}

// suspensionDecided reports whether an operator suspended or restored since dunning suspended.
func suspensionDecided(o q.DunnedOrgRow) bool {
	return o.HeldSuspendedAt != nil && !sameTime(o.SuspendedAt, o.HeldSuspendedAt)
}

func sameTime(a, b *time.Time) bool { return a == b || a != nil && b != nil && a.Equal(*b) }

func sameNano(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// plan says what becomes of every invoice's steps, then of the limit and the suspension.
func (d *dunning) plan() {
	cut, suspended, suspend := false, false, false
	for _, x := range d.list {
		x.plan(d.now)
		if State(x.Invoice.State) == Uncollectible {
			x.forgive(d.was)
		}
		cut = cut || x.inForce(limitAfter)
		suspended = suspended || x.inForce(suspendAfter)
		suspend = suspend || slices.Contains(x.take, suspendAfter)
	}
	o := d.was
	back := o.CreditLimitNano // an operator's own limit is what to go back to
	if o.WasNano != nil && !limitDecided(o) {
		back = *o.WasNano
	}
	d.next = held{limit: back, suspended: o.SuspendedAt, our: o.HeldSuspendedAt}
	if cut {
		d.next.limit, d.next.goBack = min(o.CreditLimitNano, o.ReceivableNano), &back
	}
	if suspensionDecided(o) {
		d.next.our = nil
	}
	switch {
	case suspend && o.SuspendedAt == nil:
		d.next.suspended, d.next.our = &d.now, &d.now
	case !suspended && d.next.our != nil:
		d.next.suspended, d.next.our = nil, nil
	}
}

// forgive undoes what an invoice that was given up still holds, once an operator decided: it must not hold forever.
func (d *dunnable) forgive(o q.DunnedOrgRow) {
	if slices.Contains(d.Steps, limitAfter) && (o.SetNano == nil || limitDecided(o)) {
		d.drop = append(d.drop, limitAfter)
	}
	if slices.Contains(d.Steps, suspendAfter) && (o.HeldSuspendedAt == nil || suspensionDecided(o)) {
		d.drop = append(d.drop, suspendAfter)
	}
}

// moves reports whether the limit or the suspension change.
func (d *dunning) moves() bool {
	return d.next.limit != d.was.CreditLimitNano || !sameTime(d.next.suspended, d.was.SuspendedAt)
}

// frees reports whether something that was restricted works again.
func (d *dunning) frees() bool {
	return d.next.limit > d.was.CreditLimitNano || d.was.SuspendedAt != nil && d.next.suspended == nil
}

// keeps reports whether what is held changes.
func (d *dunning) keeps() bool {
	o, n := d.was, d.next
	return !sameNano(o.WasNano, n.goBack) || !sameTime(o.HeldSuspendedAt, n.our) || n.goBack != nil && (*o.SetNano != n.limit || o.LimitsSet != o.LimitsSetNow)
}

// due reports whether there is anything to do.
func (d *dunning) due() bool {
	return d.moves() || d.keeps() || slices.ContainsFunc(d.list, func(x *dunnable) bool { return len(x.take)+len(x.drop) > 0 })
}
