package topup

import (
	"slices"
	"time"

	"millrace/db/q"
)

// Pause says why auto-recharge charges nothing.
type Pause string

// The reasons.
const (
	PauseAuth     Pause = "authentication_required" // the bank wants the customer there
	PauseDeclined Pause = "declined"                // declined for days
	PauseCard     Pause = "card_refused"            // this card will not work again
	PauseNoCard   Pause = "no_card"
	PauseDispute  Pause = "disputed" // the card's owner says that a payment was not meant
	PauseRefund   Pause = "refunded" // money went back, which charging again would take at once
	PauseRunaway  Pause = "runaway"  // far more often than it can be meant
)

// ofCard are the pauses that another card ends: it is what the customer is asked for. The others end by being turned on again.
var ofCard = []string{string(PauseAuth), string(PauseDeclined), string(PauseCard), string(PauseNoCard)}

// over are the pauses that this one takes the place of: a new card must not end it.
func (p Pause) over() []string {
	if slices.Contains(ofCard, string(p)) {
		return nil
	}
	return ofCard
}

// Sentence is the reason for the customer, with what to do.
func (p Pause) Sentence() string {
	switch p {
	case PauseAuth:
		return "Your bank asks you to confirm the payment. Add credit once with your card saved; auto-recharge then goes on."
	case PauseDeclined:
		return "Your card was declined several times. Add credit with another card saved, or give a new card."
	case PauseCard:
		return "Your bank refuses this card. Give a new card."
	case PauseNoCard:
		return "There is no card to charge. Give a card."
	case PauseDispute:
		return "A payment was disputed with your bank. Settle that first, then turn it on again."
	case PauseRefund:
		return "A payment was refunded, and your balance is now below the amount at which your card is charged. Turn it on again if you want that."
	case PauseRunaway:
		return "It charged your card three times within a day, so it was stopped to be safe. Look at your usage, then turn it on again."
	}
	return ""
}

// retryAfter is when a card is tried again after its first, second and third decline that may heal by itself.
var retryAfter = []time.Duration{6 * time.Hour, 24 * time.Hour, 72 * time.Hour}

// healing are declines that may heal by themselves; vague ones say nothing, and are tried once more. Every other code is
// final for the card: lost, stolen, expired, and those that nobody has heard of. What the payment provider says about
// sending the same request again is not about the card.
var (
	healing = map[string]bool{"insufficient_funds": true, "processing_error": true, "try_again_later": true, "issuer_not_available": true,
		"reenter_transaction": true, "withdrawal_count_limit_exceeded": true, "card_velocity_exceeded": true}
	vague = map[string]bool{"do_not_honor": true, "generic_decline": true, "card_declined": true, "": true}
)

// decline writes what follows from a declined charge: another try at its time, or the end and a pause.
func decline(next *q.Topup, d Decline, now time.Time) Pause {
	next.Failure, next.State, next.NextAt = d.Code, string(Failed), nil
	next.Declines++
	next.Attempt++ // whatever comes next is another charge
	tries := int(next.Declines)
	wait := time.Duration(0)
	switch {
	case d.Code == "authentication_required":
		return PauseAuth
	case healing[d.Code] && tries <= len(retryAfter):
		wait = retryAfter[tries-1]
	case healing[d.Code]:
		return PauseDeclined
	case vague[d.Code] && tries == 1:
		wait = retryAfter[1]
	default:
		return PauseCard
	}
	at := now.Add(wait)
	next.State, next.NextAt = string(Retrying), &at
	return ""
}
