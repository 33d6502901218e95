package invoice

import (
	"slices"
	"time"

	"millrace/db/q"
)

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
