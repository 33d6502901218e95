package topup

import (
	"slices"
	"time"

	"millrace/db/q"
	"millrace/internal/fault"
)

// sight is what the payment provider says about a top-up; nil = it knows nothing.
type sight struct {
	session *Session
	payment *Payment
}

// When the worker looks at an unfinished top-up by itself.
const (
	pageLife      = 31 * time.Minute // the payment provider takes no less than 30
	afterPage     = 2 * time.Minute  // behind the end of the page
	processingFor = time.Hour
)

// errMismatch says that what was paid is not what was asked for. It heals by no retry: a person must look.
func errMismatch(what string) error {
	return fault.New(fault.Conflict, "The payment does not match its top-up: %s.", what).WithCode("payment_mismatch")
}

// decide is the state machine: what becomes of a top-up by what is seen. It changes nothing by itself. Credit and
// clawbacks follow from the difference between t and next. customers are those under whom it may be paid.
func decide(t q.Topup, customers []string, s sight, now time.Time) (outlook, error) {
	next := t
	if x := s.session; x != nil {
		if err := matchSession(t, customers, *x); err != nil {
			return outlook{}, err
		}
		next.SessionID = optional(x.ID)
		if x.URL != "" {
			next.SessionUrl = x.URL
		}
		if x.Payment != "" {
			next.PaymentID = optional(x.Payment)
		}
	}
	if p := s.payment; p != nil {
		next.PaymentID = optional(p.ID)
		if err := matchPayment(t, customers, *p); err != nil {
			return outlook{}, err
		}
	}
	if State(t.State) != Succeeded {
		next.State = string(stateOf(State(t.State), s))
	}
	next.NextAt = nextLook(t, State(next.State), s.payment != nil, now)
	out := outlook{known: s.payment != nil}
	switch p := s.payment; {
	case p == nil:
	case State(next.State) == Succeeded:
		settle(&next, *p, now)
		if t.KeepCard && State(t.State) != Succeeded {
			out.card = p.Card
		}
		switch {
		case next.DisputedCents > t.DisputedCents:
			out.pause = PauseDispute
		case next.RefundedCents > t.RefundedCents:
			out.pause = PauseRefund
		}
	case p.State == PaymentDeclined && Kind(t.Kind) == Auto && !over(State(t.State)) && p.Attempt == int(t.Attempt):
		out.pause = decline(&next, p.Decline, now)
	case p.State == PaymentDeclined:
		next.Failure = p.Decline.Code
	}
	out.row = next
	return out, nil
}

func matchSession(t q.Topup, customers []string, x Session) error {
	switch {
	case x.Setup || x.Topup != t.ID:
		return errMismatch("the page is another top-up's")
	case !slices.Contains(customers, x.Customer):
		return errMismatch("another customer paid")
	case x.Cents != t.Cents || x.Currency != Currency:
		return errMismatch("the sum or its currency differs")
	}
	return nil
}

func matchPayment(t q.Topup, customers []string, p Payment) error {
	switch {
	case p.Topup != t.ID:
		return errMismatch("it is another top-up's")
	case !slices.Contains(customers, p.Customer) && State(t.State) != Succeeded: // later the organization may have been made known anew
		return errMismatch("another customer paid")
	case p.State == PaymentSucceeded && (p.Cents != t.Cents || p.Currency != Currency):
		return errMismatch("the sum or its currency differs")
	case t.PaymentID != nil && *t.PaymentID != p.ID && State(t.State) == Succeeded:
		return errMismatch("it was paid by another payment already")
	}
	return nil
}

// stateOf says the state of a top-up whose money has not arrived so far. Money that is there decides alone; the page decides
// before an attempt on it that was declined, because the person may try another card.
func stateOf(was State, s sight) State {
	p, x := s.payment, s.session
	switch {
	case p != nil && p.State == PaymentSucceeded && (x == nil || x.Paid):
		return Succeeded
	case p != nil && (p.State == PaymentProcessing || p.State == PaymentSucceeded):
		return Processing
	case x != nil && x.State == SessionOpen:
		return Open
	case x != nil && x.State == SessionExpired:
		return Expired
	case p != nil && p.State == PaymentCanceled:
		return Failed
	case x != nil && p != nil && p.State == PaymentDeclined:
		return Failed
	case x != nil && x.State == SessionComplete:
		return Processing // its payment is not told yet
	}
	return was // what an automatic one's decline leads to, decline says
}

// nextLook says when the worker looks again by itself; nil = never.
func nextLook(t q.Topup, state State, known bool, now time.Time) *time.Time {
	at := now.Add(processingFor)
	switch state {
	case Created, Retrying:
		return t.NextAt
	case Open:
		at = t.CreatedAt.Add(pageLife + afterPage)
		if at.Before(now) {
			at = now.Add(afterPage)
		}
	case Processing:
		if Kind(t.Kind) == Auto && !known { // the card is being charged: as whoever charges it said
			return t.NextAt
		}
	default:
		return nil
	}
	return &at
}

// settle writes what is known of money that arrived: when, what it cost, and how much of it went back.
func settle(next *q.Topup, p Payment, now time.Time) {
	if next.PaidAt == nil {
		next.PaidAt = &now
	}
	if next.FeeCents == 0 {
		next.FeeCents = max(p.Fee, 0)
	}
	next.Failure = ""
	next.RefundedCents, next.DisputedCents = max(p.Refunded, 0), max(p.Disputed, 0)
	next.ClawedCents = min(next.Cents, next.RefundedCents+next.DisputedCents)
}

// same reports that a look found nothing new, so that a row need not change.
func same(a, b q.Topup) bool {
	return a.State == b.State && text(a.SessionID) == text(b.SessionID) && a.SessionUrl == b.SessionUrl && text(a.PaymentID) == text(b.PaymentID) &&
		a.Attempt == b.Attempt && a.Declines == b.Declines && a.Failure == b.Failure && a.ClawedCents == b.ClawedCents &&
		a.RefundedCents == b.RefundedCents && a.DisputedCents == b.DisputedCents && a.FeeCents == b.FeeCents && sameTime(a.NextAt, b.NextAt)
}

func sameTime(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

// over are the states that nothing but money changes.
func over(s State) bool { return slices.Contains([]State{Succeeded, Failed, Expired}, s) }
