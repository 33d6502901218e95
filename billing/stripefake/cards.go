package stripefake

import (
	"strings"
)

// Card numbers with a behaviour of their own, as Stripe documents them; every other number that begins with 4 or 5 works.
const (
	CardGood         = "4242424242424242"
	CardMastercard   = "5555555555554444"
	CardDeclined     = "4000000000000002"
	CardDeclinesKept = "4000000000000341" // can be kept, and declines when it is charged
	CardNoFunds      = "4000000000009995"
	CardLost         = "4000000000009987"
	CardStolen       = "4000000000009979"
	CardExpired      = "4000000000000069"
	CardProcessing   = "4000000000000119" // processing_error
	CardAuthOnce     = "4000002500003155" // wants the customer there, unless it was kept
	CardAuthAlways   = "4000002760003184" // wants the customer there every time
	CardDisputed     = "4000000000000259" // works, and is disputed
)

// refusal is the answer of a bank.
type refusal struct{ code, decline, message string }

var refusals = map[string]refusal{
	CardDeclined:     {"card_declined", "generic_decline", "Your card was declined."},
	CardDeclinesKept: {"card_declined", "generic_decline", "Your card was declined."},
	CardNoFunds:      {"card_declined", "insufficient_funds", "Your card has insufficient funds."},
	CardLost:         {"card_declined", "lost_card", "Your card was declined."},
	CardStolen:       {"card_declined", "stolen_card", "Your card was declined."},
	CardExpired:      {"expired_card", "", "Your card has expired."},
	CardProcessing:   {"processing_error", "", "An error occurred while processing your card. Try again in a little bit."},
}

// authNeeded is the refusal of a charge that wants the customer there.
var authNeeded = refusal{"authentication_required", "authentication_required", "Your card was declined. This transaction requires authentication."}

// keepRefusal says why a number cannot be kept; some cards refuse only when they are charged.
func keepRefusal(number string) (refusal, bool) {
	if number == CardDeclinesKept || number == CardNoFunds || number == CardLost || number == CardStolen || number == CardProcessing {
		return refusal{}, false
	}
	r, bad := refusals[number]
	return r, bad
}

// chargeRefusal says why a number is not charged. here = the customer is there and has confirmed if asked.
func chargeRefusal(number string, here bool) (refusal, bool) {
	if !here && number == CardAuthAlways {
		return authNeeded, true
	}
	r, bad := refusals[number]
	return r, bad
}

// asksCustomer reports whether the bank wants a confirmation from a customer who is there.
func asksCustomer(number string) bool { return number == CardAuthOnce || number == CardAuthAlways }

func brandOf(number string) string {
	if strings.HasPrefix(number, "5") {
		return "mastercard"
	}
	return "visa"
}

// cleanNumber takes blanks out; ok says that it looks like a card's number.
func cleanNumber(s string) (number string, ok bool) {
	const least, most = 12, 19
	number = strings.NewReplacer(" ", "", "-", "").Replace(s)
	if len(number) < least || len(number) > most || number[0] != '4' && number[0] != '5' {
		return number, false
	}
	return number, strings.Trim(number, "0123456789") == ""
}
