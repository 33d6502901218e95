package report_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/ledger"
	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// charge writes usage as the rater books it: a rollup, and a ledger transaction some time later.
func (w *world) charge(c customer, model ids.ID, at time.Time, n money.Nano) {
	w.t.Helper()
	s := report.Sums{Requests: 1, Charged: n}
	w.roll(row{org: c.id, project: c.project, key: c.keys[0], model: model, at: at.Truncate(15 * time.Minute), Sums: s})
	w.post(c.id, at.Add(40*time.Minute), ledger.Usage, "1 requests", ledger.Debit(ledger.PrepaidPaid, n), ledger.Credit(ledger.Revenue, n))
}

func (w *world) grant(c customer, at time.Time, n money.Nano, memo string) ids.ID {
	return w.post(c.id, at, ledger.Grant, memo, ledger.Debit(ledger.Cash, n), ledger.Credit(ledger.PrepaidPaid, n))
}

func TestMovements(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 0)
	model := w.model("m/one")
	day := func(n int) time.Time { return time.Date(2026, 11, n, 10, 0, 0, 0, time.UTC) }
	first := w.grant(c, day(2), 1000, "welcome")
	w.charge(c, model, day(2).Add(time.Hour), 30)
	w.charge(c, model, day(2).Add(13*time.Hour+40*time.Minute), 20) // booked on the next day
	w.charge(c, model, day(5), 100)
	promo := w.post(c.id, day(5).Add(-9*time.Hour), ledger.Grant, "sorry", ledger.Debit(ledger.PromoCost, 7), ledger.Credit(ledger.PrepaidPromo, 7))
	lines, more, err := w.Movements(t.Context(), c.member, c.id, report.Mark{}, 50)
	if err != nil || more {
		t.Fatalf("more %v, error %v", more, err)
	}
	want := []report.Movement{
		{At: time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC), Kind: ledger.Usage, Requests: 1, Amount: -100, After: 857},
		{At: day(5).Add(-9 * time.Hour), Kind: ledger.Grant, Memo: "sorry", Txn: promo, Amount: 7, After: 957},
		{At: time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC), Kind: ledger.Usage, Requests: 2, Amount: -50, After: 950},
		{At: day(2), Kind: ledger.Grant, Memo: "welcome", Txn: first, Amount: 1000, After: 1000},
	}
	if fmt.Sprint(lines) != fmt.Sprint(want) {
		t.Errorf("lines\n%v\nwant\n%v", lines, want)
	}
}

// Whatever happened on which day, the pages tie out: the newest line's balance is the books', every line leads from the
// one behind it, the oldest starts from nothing, and the pages of any size are the same list.
func TestMovementsTieOut(t *testing.T) {
	w := newWorld(t)
	model := w.model("m/one")
	rapid.Check(t, func(rt *rapid.T) {
		c := w.customer("Acme", 1, 0)
		var spendable money.Nano
		for range rapid.IntRange(0, 25).Draw(rt, "things") {
			at := now.AddDate(0, 0, -rapid.IntRange(0, 4).Draw(rt, "day")).Add(-time.Duration(rapid.IntRange(0, 20*60).Draw(rt, "minutes")) * time.Minute)
			n := money.Nano(rapid.Int64Range(1, 1_000_000).Draw(rt, "amount"))
			if rapid.Bool().Draw(rt, "usage") {
				w.charge(c, model, at, n)
				n = -n
			} else {
				w.grant(c, at, n, "x")
			}
			spendable += n
		}
		read := func(limit int) (all []report.Movement) {
			for after := (report.Mark{}); ; {
				page, more, err := w.Movements(t.Context(), c.member, c.id, after, limit)
				if err != nil {
					rt.Fatal(err)
				}
				all = append(all, page...)
				if !more {
					return all
				}
				if len(page) != limit {
					rt.Fatalf("a page of %d lines with more to come, want %d", len(page), limit)
				}
				after = page[len(page)-1].Mark()
			}
		}
		whole := read(report.MaxRows)
		balance := spendable
		for i, l := range whole {
			if l.After != balance {
				rt.Fatalf("line %d has balance %d, want %d", i, l.After, balance)
			}
			balance -= l.Amount
		}
		if balance != 0 {
			rt.Fatalf("the oldest line begins with %d, want 0", balance)
		}
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		if pages := read(limit); fmt.Sprint(pages) != fmt.Sprint(whole) {
			rt.Fatalf("pages of %d lines:\n%v\nwant\n%v", limit, pages, whole)
		}
	})
}

func TestStatementIsTheLedgers(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 0)
	w.grant(c, now.Add(-time.Hour), 500, "welcome")
	s, err := w.Statement(t.Context(), c.member, c.id, now.AddDate(0, 0, -1), now)
	if err != nil || len(s.Lines) != 1 || s.Closing[ledger.PrepaidPaid] != -500 {
		t.Errorf("statement %+v, error %v", s, err)
	}
}
