package invoice

import (
	"fmt"
	"time"

	"millrace/db/q"
)

// deed is one change at the payment provider.
type deed int

// The deeds. Each is repeatable: what it does is looked up before it is done again.
const (
	wait   deed = iota // nothing is to be done
	create             // find the draft that a lost answer made, or make one
	fill               // add the lines that are missing, compare, and finalise
	drop               // delete a draft that nobody needs
	send
	charge
	lower // what it asks for, by what came or was credited here
	end   // it without its own payment
	note  // a credit note of what was paid
)

// step is what comes next.
type step struct {
	do      deed
	state   PushState
	problem string        // waits for a person; "" = nothing is wrong
	cents   int64         // of lower
	how     TillEnd       // of end
	note    *q.CreditNote // of note
}

func stop(format string, args ...any) step {
	return step{state: PushStopped, problem: fmt.Sprintf(format, args...)}
}

// askAgain is when a declined card is tried again: with the reminders.
var askAgain = []time.Duration{3 * 24 * time.Hour, 7 * 24 * time.Hour}

// next is the state machine: what comes next by what is seen. It changes nothing by itself. The books hold what is seen
// already.
func next(v view, now time.Time) step {
	open := State(v.inv.State) == Open
	switch {
	case v.seen == nil && v.push.Ref != nil && PushState(v.push.State) != PushDraft && PushState(v.push.State) != PushNew:
		return stop("the payment provider does not know %s any more", *v.push.Ref)
	case v.seen == nil && !open:
		return step{state: PushDone}
	case v.seen == nil:
		return step{do: create, state: PushNew}
	}
	switch seen := *v.seen; seen.Status {
	case TillDraft:
		if !open {
			return step{do: drop, state: PushDone}
		}
		return step{do: fill, state: PushDraft}
	case TillVoid:
		if open {
			return stop("it was voided at the payment provider, and %s are open here: start over, or credit them here", dollars(unpaid(v.inv)))
		}
		return step{state: PushDone}
	case TillPaid:
		return nextPaid(v, now)
	}
	return nextOpen(v, now)
}

// nextOpen is about an invoice that waits for money at the payment provider.
func nextOpen(v view, now time.Time) step {
	seen, open := *v.seen, State(v.inv.State) == Open
	mayCome := unpaid(v.inv) + v.inv.GivenUpCents // given up: it is taken if it comes after all
	over := seen.Due - mayCome
	switch {
	case seen.Total != v.inv.TotalCents || seen.Currency != "usd":
		return stop("it is %s %s at the payment provider and %s here: void it there, then start over", dollars(seen.Total), seen.Currency, dollars(v.inv.TotalCents))
	case over < 0:
		return stop("the payment provider asks for %s only, and %s are due here: credit the difference here", dollars(seen.Due), dollars(mayCome))
	case mayCome == 0 && State(v.inv.State) == Void && v.push.ReceivedCents == 0:
		return step{do: end, how: Voided, state: PushAsked}
	case mayCome == 0:
		return step{do: end, how: PaidOutside, state: PushAsked}
	case over > 0:
		return step{do: lower, cents: over, state: stateOf(v)}
	case !open && seen.Status == TillOpen:
		return step{do: end, how: GivenUp, state: PushAsked}
	case !open:
		return step{state: PushDone}
	case seen.Status == TillUncollectible:
		return step{state: PushAsked, problem: "it was given up at the payment provider, and is open here: write it off here, or wait for the money"}
	}
	return nextAsk(v, now)
}

// stateOf is how far a final invoice is.
func stateOf(v view) PushState {
	if v.push.Asks > 0 {
		return PushAsked
	}
	return PushFinal
}

// nextAsk asks for the money: once by mail, or from the card, again with the reminders, and when there is another card.
func nextAsk(v view, now time.Time) step {
	p := v.push
	if !v.seen.Charge {
		if p.Asks == 0 {
			return step{do: send, state: PushFinal}
		}
		return step{state: PushAsked}
	}
	if v.method == "" {
		return step{state: PushAsked, problem: "there is no card to charge any more: the customer can pay on the invoice's page"}
	}
	allowed := int32(1)
	for _, after := range askAgain {
		if p.FailedAt != nil && !now.Before(p.FailedAt.Add(after)) {
			allowed++
		}
	}
	if p.Asks < allowed || p.MethodID != v.method {
		return step{do: charge, state: stateOf(v)}
	}
	return step{state: PushAsked}
}

// nextPaid is about an invoice of which nothing remains at the payment provider.
func nextPaid(v view, now time.Time) step {
	for i := range v.notes {
		if n := &v.notes[i]; toSend(n) && (!pauses(n, now) || unexplained(v.push, v.notes, *v.seen) >= sends(n)) {
			return step{do: note, note: n, state: PushAsked}
		}
	}
	st, problem := nextReturned(v), notSent(v)
	switch {
	case problem == "":
	case st.problem == "":
		st.state, st.problem = PushAsked, problem
	default:
		st.problem += "; " + problem
	}
	return st
}

// nextReturned is about money that came and went again.
func nextReturned(v view) step {
	if State(v.inv.State) == Open {
		due := dollars(unpaid(v.inv))
		switch {
		case v.push.ClawedCents > 0:
			return step{state: PushAsked, problem: "its payment was taken back (a refund or a dispute): " + due + " are due again, to be paid by hand"}
		case v.seen.Outside:
			return stop("it was marked as paid at the payment provider, past it, and %s are due here: record the payment, or wait for a transfer", due)
		}
		return stop("the payment provider says that it is paid, but %s did not arrive: a balance or a credit note was used there; credit or record them here", due)
	}
	return step{state: PushDone}
}

func dollars(cents int64) string {
	if cents < 0 {
		return "-" + dollars(-cents)
	}
	return fmt.Sprintf("$%d.%02d", cents/100, cents%100)
}
