package month

import (
	"slices"

	"millrace/billing/ledger"
	"millrace/internal/money"
)

// Column is one figure of a report.
type Column int

// The columns. Those of cash, and those of each balance between its opening and its closing, carry their sign and add up.
const (
	CashCard Column = iota
	CashHand
	CashReturned
	CashFees
	CashCorrected
	CashChange
	DeferredOpening
	DeferredAdded
	DeferredUsed
	DeferredExpired
	DeferredRefunded
	DeferredCorrected
	DeferredClosing
	PromoOpening
	PromoGiven
	PromoUsed
	PromoEnded
	PromoCorrected
	PromoClosing
	ReceivableOpening
	ReceivableUsed
	ReceivableInvoiced
	ReceivablePaid
	ReceivableCredited
	ReceivableGivenUp
	ReceivableCorrected
	ReceivableClosing
	Delivered
	FromCredit
	FromPromo
	OnAccount
	NotCharged
	Breakage
	Recognised
	PromoCost
	Refunded
	Tax
	Fees
	BadDebt
	Adjustments
	Rounding
	NumColumns
)

// Info describes a column.
type Info struct {
	Key   string // in exports; a contract
	Title string
	Group string // what it is shown under
	Sum   bool   // adds up over months, too: not an opening or closing balance
}

// Groups, in the order in which people read them.
const (
	Revenue     = "Revenue"
	Cash        = "Cash"
	Deferred    = "Deferred: paid credit not used yet"
	Promotional = "Promotional credit"
	Receivable  = "Receivable: used and not paid yet"
	Costs       = "Tax, costs and corrections"
)

// Groups are all of them.
var Groups = []string{Revenue, Cash, Deferred, Promotional, Receivable, Costs}

// Columns describes each column.
var Columns = [NumColumns]Info{
	CashCard:            {"cash_received_card", "Received by card", Cash, true},
	CashHand:            {"cash_received_by_hand", "Received otherwise", Cash, true},
	CashReturned:        {"cash_returned", "Returned by refunds and disputes", Cash, true},
	CashFees:            {"cash_fees", "Kept by the payment provider", Cash, true},
	CashCorrected:       {"cash_corrected", "Corrections", Cash, true},
	CashChange:          {"cash_change", "Change of cash", Cash, true},
	DeferredOpening:     {"deferred_opening", "Opening", Deferred, false},
	DeferredAdded:       {"deferred_added", "Added", Deferred, true},
	DeferredUsed:        {"deferred_used", "Used", Deferred, true},
	DeferredExpired:     {"deferred_expired", "Expired", Deferred, true},
	DeferredRefunded:    {"deferred_refunded", "Refunded", Deferred, true},
	DeferredCorrected:   {"deferred_corrected", "Adjusted and reversed", Deferred, true},
	DeferredClosing:     {"deferred_closing", "Closing", Deferred, false},
	PromoOpening:        {"promotional_opening", "Opening", Promotional, false},
	PromoGiven:          {"promotional_given", "Given", Promotional, true},
	PromoUsed:           {"promotional_used", "Used", Promotional, true},
	PromoEnded:          {"promotional_expired", "Expired", Promotional, true},
	PromoCorrected:      {"promotional_corrected", "Adjusted and reversed", Promotional, true},
	PromoClosing:        {"promotional_closing", "Closing", Promotional, false},
	ReceivableOpening:   {"receivable_opening", "Opening", Receivable, false},
	ReceivableUsed:      {"receivable_used", "Used on account", Receivable, true},
	ReceivableInvoiced:  {"receivable_invoiced", "Tax and rounding of invoices", Receivable, true},
	ReceivablePaid:      {"receivable_paid", "Paid", Receivable, true},
	ReceivableCredited:  {"receivable_credited", "Credit notes, and payments that went back", Receivable, true},
	ReceivableGivenUp:   {"receivable_given_up", "Given up", Receivable, true},
	ReceivableCorrected: {"receivable_corrected", "Adjusted and reversed", Receivable, true},
	ReceivableClosing:   {"receivable_closing", "Closing", Receivable, false},
	Delivered:           {"delivered", "Delivered, at its price", Revenue, true},
	FromCredit:          {"delivered_from_paid_credit", "of it paid from credit", Revenue, true},
	FromPromo:           {"delivered_from_promotional_credit", "of it from promotional credit", Revenue, true},
	OnAccount:           {"delivered_on_account", "of it on account", Revenue, true},
	NotCharged:          {"delivered_not_charged", "of it beyond the limit, not charged", Revenue, true},
	Breakage:            {"breakage", "Breakage: paid credit that expired", Revenue, true},
	Recognised:          {"recognised", "Recognised revenue", Revenue, true},
	PromoCost:           {"promotional_cost", "Promotional credit given away", Costs, true},
	Refunded:            {"refunded", "Refunded by credit notes", Costs, true},
	Tax:                 {"tax", "Tax collected", Costs, true},
	Fees:                {"fees", "Fees of the payment provider", Costs, true},
	BadDebt:             {"bad_debt", "Receivables given up", Costs, true},
	Adjustments:         {"adjustments", "Adjustments", Costs, true},
	Rounding:            {"rounding", "Rounding to cents", Costs, true},
}

// Figures is a report of one customer, or of all.
type Figures [NumColumns]money.Nano

// Add makes f the sum of both.
func (f *Figures) Add(o *Figures) {
	for i, n := range o {
		f[i] += n
	}
}

// Difference is what the figures leave unexplained: zero in a sound book.
func (f *Figures) Difference() money.Nano {
	owned := f[CashChange] + f[ReceivableClosing] - f[ReceivableOpening]
	owed := f[DeferredClosing] - f[DeferredOpening] + f[PromoClosing] - f[PromoOpening] + f[Tax]
	earned := f[Delivered] + f[Breakage] - f[PromoCost] - f[Refunded] - f[Adjustments] - f[NotCharged] - f[Fees] - f[BadDebt] - f[Rounding]
	return owned - owed - earned
}

// cells are sums of ledger entries by kind of transaction and account, debit positive.
type cells map[cell]money.Nano

type cell struct {
	kind    ledger.Kind
	account ledger.Account
}

func (c cells) add(kind, account string, n int64) {
	c[cell{ledger.Kind(kind), ledger.Account(account)}] += money.Nano(n)
}

// of adds up accounts over some kinds; no kinds = all.
func (c cells) of(kinds []ledger.Kind, accounts ...ledger.Account) (n money.Nano) {
	for key, amount := range c {
		if (kinds == nil || slices.Contains(kinds, key.kind)) && slices.Contains(accounts, key.account) {
			n += amount
		}
	}
	return n
}

var (
	incoming = []ledger.Kind{ledger.Grant, ledger.Topup, ledger.Payment}
	refunds  = []ledger.Kind{ledger.Refund}
	used     = []ledger.Kind{ledger.Usage}
	expired  = []ledger.Kind{ledger.Expiry}
	invoiced = []ledger.Kind{ledger.Invoice}
	paid     = []ledger.Kind{ledger.Payment}
	// named are the accounts that one column alone tells of, and the sign it tells them with.
	named = []struct {
		column  Column
		account ledger.Account
		sign    money.Nano
	}{{Delivered, ledger.Revenue, -1}, {NotCharged, ledger.Overrun, 1}, {Breakage, ledger.Breakage, -1}, {PromoCost, ledger.PromoCost, 1}, {Refunded, ledger.Refunds, 1},
		{Tax, ledger.Tax, -1}, {Fees, ledger.Fees, 1}, {BadDebt, ledger.BadDebt, 1}, {Adjustments, ledger.Adjustments, 1}, {Rounding, ledger.Rounding, 1}}
)

// figures lays every cell on the columns. What no column names is in the corrections, so that nothing is lost.
func (c cells) figures(opening map[ledger.Account]money.Nano) (f Figures) {
	for _, x := range named {
		f[x.column] = x.sign * c.of(nil, x.account)
	}
	c.cash(&f)
	credit := func(kinds []ledger.Kind) money.Nano { return -c.of(kinds, ledger.PrepaidPaid, ledger.Deferred) }
	f.roll(DeferredOpening, -opening[ledger.PrepaidPaid]-opening[ledger.Deferred], credit(nil), credit(incoming), credit(used), credit(expired), credit(refunds))
	promo := func(kinds []ledger.Kind) money.Nano { return -c.of(kinds, ledger.PrepaidPromo) }
	f.roll(PromoOpening, -opening[ledger.PrepaidPromo], promo(nil), promo(incoming), promo(used), promo(expired))
	// What was given up leaves the receivable by transactions of any kind: it is told apart by its account.
	owed := func(kinds []ledger.Kind) money.Nano { return c.of(kinds, ledger.Receivable, ledger.BadDebt) }
	f.roll(ReceivableOpening, opening[ledger.Receivable], c.of(nil, ledger.Receivable), owed(used), owed(invoiced), owed(paid), owed(refunds), -f[BadDebt])
	f[FromCredit], f[FromPromo], f[OnAccount] = -f[DeferredUsed], -f[PromoUsed], f[ReceivableUsed]
	f[Recognised] = f[FromCredit] + f[OnAccount] + f[Breakage]
	return f
}

// cash is money at the payment provider and with the operator. Fees are told apart: what is received is told before them.
func (c cells) cash(f *Figures) {
	f[CashCard] = c.of(incoming, ledger.StripeClearing) + c.of(incoming, ledger.Fees)
	f[CashHand] = c.of(incoming, ledger.Cash)
	f[CashReturned] = c.of(refunds, ledger.StripeClearing, ledger.Cash) + c.of(refunds, ledger.Fees)
	f[CashFees] = -f[Fees]
	f[CashChange] = c.of(nil, ledger.StripeClearing, ledger.Cash)
	f[CashCorrected] = f[CashChange] - f[CashCard] - f[CashHand] - f[CashReturned] - f[CashFees]
}

// roll writes a balance from its opening over what moved it to its closing. What the named movements leave of all is the
// column of corrections.
func (f *Figures) roll(first Column, opening, all money.Nano, moves ...money.Nano) {
	f[first] = opening
	rest := all
	for i, n := range moves {
		f[int(first)+1+i] = n
		rest -= n
	}
	f[int(first)+1+len(moves)], f[int(first)+2+len(moves)] = rest, opening+all
}
