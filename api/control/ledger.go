package control

import (
	"time"

	"millrace/billing/ledger"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

const (
	maxLedgerDays     = 400
	defaultLedgerDays = 31
)

// LedgerQuery asks for a span of the books.
type LedgerQuery struct {
	From     time.Time `json:"from,omitempty"`
	To       time.Time `json:"to,omitempty"`
	TimeZone string    `json:"time_zone,omitempty"`
}

// Ledger is what happened to an organization's accounts. Debits are positive, credits negative; each line sums to zero,
// and opening plus lines is closing, account by account.
type Ledger struct {
	From    time.Time         `json:"from"`
	To      time.Time         `json:"to"`
	Opening map[string]Amount `json:"opening"`
	Closing map[string]Amount `json:"closing"`
	Lines   []LedgerLine      `json:"lines"`
}

// LedgerLine is one transaction, or all usage of a day.
type LedgerLine struct {
	TxnID   string        `json:"txn_id,omitempty"`
	At      time.Time     `json:"at"`
	Kind    string        `json:"kind"`
	Memo    string        `json:"memo"`
	Entries []LedgerEntry `json:"entries"`
}

// LedgerEntry moves one account.
type LedgerEntry struct {
	Account string `json:"account"`
	Amount  Amount `json:"amount"`
}

func (a *api) getLedger(c *call, q LedgerQuery) (Ledger, error) {
	org, err := c.org()
	if err != nil {
		return Ledger{}, err
	}
	if _, err := a.Tenants.Org(c, c.actor, org); err != nil {
		return Ledger{}, err
	}
	zone, err := time.LoadLocation(orDefault(q.TimeZone, "UTC"))
	if err != nil || q.TimeZone == "Local" {
		return Ledger{}, fault.New(fault.Invalid, "%q is no IANA time zone.", q.TimeZone).WithParam("time_zone")
	}
	if q.To.IsZero() {
		q.To = a.Clock.Now().UTC()
	}
	if q.From.IsZero() {
		q.From = q.To.AddDate(0, 0, -defaultLedgerDays)
	}
	if !q.From.Before(q.To) || q.To.Sub(q.From) > maxLedgerDays*24*time.Hour {
		return Ledger{}, fault.New(fault.Invalid, "from must lie before to, and at most %d days.", maxLedgerDays).WithParam("from")
	}
	s, err := a.Books.Statement(c, c.actor, org, q.From.In(zone), q.To.In(zone))
	if err != nil {
		return Ledger{}, err
	}
	out := Ledger{From: s.From, To: s.To, Opening: balances(s.Opening), Closing: balances(s.Closing), Lines: make([]LedgerLine, len(s.Lines))}
	for i, l := range s.Lines {
		out.Lines[i] = LedgerLine{TxnID: format(ids.Txn, l.ID), At: l.At, Kind: string(l.Kind), Memo: l.Memo, Entries: entries(l.Entries)}
	}
	return out, nil
}

func balances(m map[ledger.Account]money.Nano) map[string]Amount {
	out := make(map[string]Amount, len(m))
	for account, n := range m {
		out[string(account)] = amount(n)
	}
	return out
}

func entries(list []ledger.Entry) []LedgerEntry {
	out := make([]LedgerEntry, len(list))
	for i, e := range list {
		out[i] = LedgerEntry{Account: string(e.Account), Amount: amount(e.Amount)}
	}
	return out
}
