// Package ledger is the double-entry book of every organization: where each nano-dollar came from and went.
//
// It owns ledger_txns, ledger_entries, ledger_lot_moves, ledger_keys and the projections ledger_balances, ledger_days and ledger_lots. It does not own what a charge is
// (billing/rate), what may be spent (billing/credit) or what a page shows. Idempotency belongs to the caller: it names its
// business key, or has events that are unique themselves.
//
// Words. Transaction: what happened once, of one kind, for one organization. Entry: its effect on one account, debit
// positive, credit negative. Balance: the sum of an account's entries, kept as a projection that may be dropped and
// rebuilt. So credit that a customer can spend is a negative balance of a prepaid account. Lot: prepaid credit of one
// grant with its own terms; every posting says which lots it opened and burned, so what is left of each is a projection too.
//
// Invariants: a transaction's entries sum to zero (checked here, and by the database at commit); nothing is updated or
// deleted, a correction is a new transaction; the day of a transaction derives from its id; balances are locked by
// (organization, account), all of an organization's before any of them moves, and before allotments and budgets; the lots
// of a prepaid account add up to its credit, and to nothing while it is owed.
//
// An organization's first balances cannot be locked before there are any: transactions that make them at the same time may wait in
// a circle. The database then rolls one back whole, and db.InTx runs it again. That is until the first of them commits: from then on
// everyone waits for a balance that is there before making another. So nothing is ordered for it.
package ledger

import (
	"fmt"
	"math"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
)

// Account is a kind of account; each organization has one of each.
type Account string

// The accounts, as the table ledger_accounts explains them.
const (
	PrepaidPaid    Account = "prepaid_paid"
	PrepaidPromo   Account = "prepaid_promo"
	Receivable     Account = "receivable"
	Revenue        Account = "revenue"
	Deferred       Account = "deferred"
	Breakage       Account = "breakage"
	PromoCost      Account = "promo_cost"
	Refunds        Account = "refunds"
	Tax            Account = "tax"
	StripeClearing Account = "stripe_clearing"
	Cash           Account = "cash"
	Fees           Account = "fees"
	Adjustments    Account = "adjustments"
	Overrun        Account = "overrun"
	BadDebt        Account = "bad_debt"
	Rounding       Account = "rounding"
)

// Kind says what a transaction is about.
type Kind string

// The kinds.
const (
	Usage      Kind = "usage"
	Grant      Kind = "grant"
	Topup      Kind = "topup"
	Refund     Kind = "refund"
	Expiry     Kind = "expiry"
	Adjustment Kind = "adjustment"
	Reversal   Kind = "reversal"
	Invoice    Kind = "invoice" // what making an invoice final moves: tax, and what rounding to cents leaves
	Payment    Kind = "payment" // of an invoice
)

// Entry moves an account: positive debits it, negative credits it.
type Entry struct {
	Account Account
	Amount  money.Nano
}

// Debit and Credit make entries from amounts that are not negative.
func Debit(a Account, n money.Nano) Entry  { return Entry{Account: a, Amount: n} }
func Credit(a Account, n money.Nano) Entry { return Entry{Account: a, Amount: -n} }

// MaxMemoBytes bounds a transaction's memo.
const MaxMemoBytes = 500

// Txn is a transaction to post.
type Txn struct {
	ID      ids.ID // a UUIDv7; ids.Nil = made when posted. Its day is the partition
	Org     ids.ID
	Kind    Kind
	Memo    string  // for people, at most MaxMemoBytes
	Key     string  // the caller's idempotency key, unique per organization; "" = none (Post only)
	Entries []Entry // several for one account are added up
	// Month of usage: the first day, UTC, of the month in which its requests started; zero = that of the transaction's own day.
	Month time.Time
	Lot   Lot    // terms of the prepaid credit that it gives
	Burn  ids.ID // the lot that it takes prepaid credit from first; ids.Nil = the usual order
}

// MonthOf is the first day, UTC, of the month that a moment is in.
func MonthOf(at time.Time) time.Time {
	y, m, _ := at.UTC().Date()
	return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
}

// check gives the transaction's entries, one per account, or says why it cannot be posted.
func (t Txn) check() (map[Account]money.Nano, error) {
	switch {
	case t.Org == ids.Nil:
		return nil, fmt.Errorf("ledger: a %s transaction without an organization", t.Kind)
	case t.ID != ids.Nil && t.ID.Version() != 7:
		return nil, fmt.Errorf("ledger: transaction id %s is no UUIDv7", t.ID)
	case !t.Month.IsZero() && (t.Kind != Usage || !t.Month.Equal(MonthOf(t.Month))):
		return nil, fmt.Errorf("ledger: a %s transaction of the month %s", t.Kind, t.Month)
	case len(t.Memo) > MaxMemoBytes:
		return nil, fmt.Errorf("ledger: memo of %d bytes, at most %d", len(t.Memo), MaxMemoBytes)
	}
	sums := make(map[Account]money.Nano, len(t.Entries))
	for _, e := range t.Entries {
		sum, ok := add(sums[e.Account], e.Amount)
		if !ok {
			return nil, fmt.Errorf("ledger: account %s overflows", e.Account)
		}
		sums[e.Account] = sum
	}
	var total money.Nano
	for account, amount := range sums {
		if amount == 0 {
			delete(sums, account)
			continue
		}
		var ok bool
		if total, ok = add(total, amount); !ok {
			return nil, fmt.Errorf("ledger: the entries overflow")
		}
	}
	switch {
	case total != 0:
		return nil, fmt.Errorf("ledger: the %s transaction of %s is off by %s USD", t.Kind, t.Org, total)
	case len(sums) < 2:
		return nil, fmt.Errorf("ledger: the %s transaction of %s moves nothing", t.Kind, t.Org)
	}
	return sums, nil
}

// add refuses to wrap: a sum that wraps could balance by accident.
func add(a, b money.Nano) (money.Nano, bool) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, false
	}
	return a + b, true
}
