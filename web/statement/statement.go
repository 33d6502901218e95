// Package statement draws an organization's statement of a UTC calendar month: opening, every line, closing. Customers and
// operators see the same one.
//
// It owns how the books read to people: which accounts are the customer's, and which way a sign points. The books are
// billing/ledger's. Invariants: opening plus lines is closing, to the nano-dollar, or Of refuses; usage is one line per UTC
// day, which leads to the requests it is made of.
package statement

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/billing/ledger"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/ui"
)

// Statement is a month of an organization's money.
type Statement struct {
	From, To         time.Time
	Opening, Closing Balances
	Lines            []Line // oldest first
}

// Balances are what a customer has and owes at a moment.
type Balances struct {
	Paid, Promo money.Nano // credit that is left; paid is negative after a dispute
	Owed        money.Nano // used on the credit limit and not paid yet
}

// Total is what the customer has, after what is owed.
func (b Balances) Total() money.Nano { return b.Paid + b.Promo - b.Owed }

// Line is a transaction, or all usage of a UTC day.
type Line struct {
	At         time.Time
	Kind       ledger.Kind
	Text       string
	Amount     money.Nano // what it did to the total
	After      money.Nano // the total behind it
	Txn        ids.ID     // ids.Nil for a day of usage
	Reversible bool       // an operator may reverse it
}

// customers are the accounts that are the customer's; the others are the operator's own books.
var customers = map[ledger.Account]bool{ledger.PrepaidPaid: true, ledger.PrepaidPromo: true, ledger.Receivable: true}

// Of reads a statement from the books. Lines that do not touch the customer are left out.
func Of(s *ledger.AccountStatement) (Statement, error) {
	out := Statement{From: s.From, To: s.To, Opening: balances(s.Opening), Closing: balances(s.Closing)}
	total := out.Opening.Total()
	for _, l := range s.Lines {
		var n money.Nano
		for _, e := range l.Entries {
			if customers[e.Account] {
				n -= e.Amount // what the customer has is a credit
			}
		}
		if n == 0 {
			continue
		}
		total += n
		line := Line{At: l.At, Kind: l.Kind, Text: l.Memo, Amount: n, After: total, Txn: l.ID}
		switch l.Kind {
		case ledger.Usage:
			line.Text = "Usage of " + l.At.UTC().Format("2 January")
		case ledger.Grant, ledger.Adjustment, ledger.Expiry:
			line.Reversible = true
		}
		out.Lines = append(out.Lines, line)
	}
	if total != out.Closing.Total() {
		return Statement{}, fmt.Errorf("statement: opening and lines make %s, closing is %s", total, out.Closing.Total())
	}
	return out, nil
}

func balances(accounts map[ledger.Account]money.Nano) Balances {
	return Balances{Paid: -accounts[ledger.PrepaidPaid], Promo: -accounts[ledger.PrepaidPromo], Owed: accounts[ledger.Receivable]}
}

// kinds says the kinds in words.
var kinds = map[ledger.Kind]string{ledger.Usage: "usage", ledger.Grant: "credit", ledger.Topup: "top-up", ledger.Refund: "refund", ledger.Expiry: "ended",
	ledger.Adjustment: "adjustment", ledger.Reversal: "reversal", ledger.Invoice: "invoice", ledger.Payment: "payment"}

// Grid is the statement as a table. day gives where a day of usage leads to; act, what can be done about a line (nil =
// nothing).
func (s Statement) Grid(day func(time.Time) string, act func(Line) *ui.Link) ui.Grid {
	g := ui.Grid{Caption: "Statement of " + s.From.Format("January 2006"), Cards: true,
		Columns: []ui.Column{{Name: "When"}, {Name: "What", Wrap: true}, {Name: "Kind"}, {Name: "Amount", Num: true}, {Name: "Balance", Num: true}, {Name: "Transaction", Mono: true, Less: true}}}
	g.Rows = append(g.Rows, ui.Row{ui.At(s.From), ui.T("Opening balance"), ui.T("opening"), ui.T(""), ui.USD(s.Opening.Total()), ui.T("")})
	for _, l := range s.Lines {
		what, ref := ui.T(l.Text), ui.T("")
		if l.Txn == ids.Nil {
			what = ui.L(day(l.At), l.Text)
		} else {
			ref = ui.T(ids.Format(ids.Txn, l.Txn))
		}
		if act != nil {
			if a := act(l); a != nil {
				ref = ui.L(a.Href, a.Text)
				ref.CSV = ids.Format(ids.Txn, l.Txn)
			}
		}
		g.Rows = append(g.Rows, ui.Row{ui.At(l.At), what, ui.T(kinds[l.Kind]), ui.USD(l.Amount), ui.USD(l.After), ref})
	}
	g.Rows = append(g.Rows, ui.Row{ui.At(s.To), ui.T("Closing balance"), ui.T("closing"), ui.T(""), ui.USD(s.Closing.Total()), ui.T("")})
	return g
}

// amount is money for programs.
type amount struct {
	USD  string     `json:"usd"`
	Nano money.Nano `json:"nano"`
}

func amountOf(n money.Nano) amount { return amount{n.String(), n} }

// JSON answers the statement for programs.
func (s Statement) JSON(c echo.Context) error {
	type line struct {
		At      time.Time `json:"at"`
		Kind    string    `json:"kind"`
		Text    string    `json:"text"`
		Amount  amount    `json:"amount"`
		Balance amount    `json:"balance"`
		Txn     string    `json:"txn_id,omitempty"`
	}
	out := struct {
		From    time.Time `json:"from"`
		To      time.Time `json:"to"`
		Opening amount    `json:"opening"`
		Lines   []line    `json:"lines"`
		Closing amount    `json:"closing"`
	}{s.From, s.To, amountOf(s.Opening.Total()), []line{}, amountOf(s.Closing.Total())}
	for _, l := range s.Lines {
		x := line{At: l.At, Kind: kinds[l.Kind], Text: l.Text, Amount: amountOf(l.Amount), Balance: amountOf(l.After)}
		if l.Txn != ids.Nil {
			x.Txn = ids.Format(ids.Txn, l.Txn)
		}
		out.Lines = append(out.Lines, x)
	}
	return c.JSON(http.StatusOK, out)
}
