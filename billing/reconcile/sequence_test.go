package reconcile_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

const (
	sequences     = 20  // that are tried
	slowSequences = 400 // with MILLRACE_SLOW
	livesOfHouse  = 50  // each is compared with all before it
	leastActions  = 10
	mostActions   = 40
	lookFor       = time.Minute     // a bound for what should take milliseconds
	lifetime      = 5 * time.Minute // of one sequence
)

// Whatever happens to a customer's money, in whatever order and however often it is told: nothing is made or lost on the whole
// way from the hold to the invoice.
func TestAnySequenceKeepsTheMoney(t *testing.T) {
	checks(t)
	var h *house
	rapid.Check(t, func(rt *rapid.T) {
		if h == nil || h.unusable || h.lives == livesOfHouse {
			if h != nil {
				h.stop()
			}
			h = openHouse(t)
		}
		h.unusable = true
		h.lives++
		l, end := begin(t, rt, h)
		defer end()
		for _, a := range rapid.SliceOfN(rapid.SampledFrom(actions), leastActions, mostActions).Draw(rt, "actions") {
			a.do(l)
			l.check(a.name)
		}
		l.finish()
		h.unusable = false
	})
}

// checks sets how many sequences rapid tries, unless the command line says it.
func checks(t *testing.T) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if f.Value.String() != f.DefValue {
		return
	}
	n := sequences
	if os.Getenv("MILLRACE_SLOW") != "" {
		n = slowSequences
	}
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
}

// begin makes a customer of the house with a little credit, a model for sale, and gateways.
func begin(t *testing.T, rt *rapid.T, h *house) (l *life, end func()) {
	l = &life{house: h, model: newModel(), rt: rt, product: ids.New(), began: time.Now(), heard: len(h.fake.Messages()), seen: map[ids.ID]bool{}}
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeout(t.Context(), lifetime)
	zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"}).Draw(rt, "zone")
	var err error
	l.zone, err = time.LoadLocation(zone)
	l.must(err)
	l.payer, l.owner, err = h.newCustomer(l.ctx, zone)
	l.must(err)
	l.must(h.newModel(l.ctx, l.product))
	l.newPrice()
	if l.chance("postpaid", 2) {
		l.changeLimit()
	}
	l.grant(credit.Promotional, &lot{account: ledger.PrepaidPromo, amount: 1 + l.amount("first credit", 2*usd), ends: l.chance("ends", 2)})
	for i := range l.gates {
		l.openGate(i)
	}
	return l, func() {
		gone, kill := context.WithCancel(context.Background())
		kill()
		for _, a := range l.gates {
			_ = a.Close(gone, credit.LogEnd{}) // those that left are closed already
		}
		cancel()
	}
}

// read gives what one row of a query says.
func (h *house) read(sql string, args []any, into ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookFor)
	defer cancel()
	return h.in(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql, args...).Scan(into...) })
}

// check compares the books with the model after an action.
func (l *life) check(after string) {
	l.rt.Helper()
	for _, x := range l.movements() {
		if err := l.observe(x); err != nil {
			l.rt.Fatalf("after %q: %v", after, err)
		}
	}
	books := l.books()
	for _, a := range slices.Sorted(maps.Keys(books)) {
		if books[a] != l.account[a] {
			l.rt.Fatalf("after %q: %s has %s USD, want %s", after, a, money.Nano(books[a]), money.Nano(l.account[a]))
		}
	}
	b, err := l.desk.Balance(l.ctx, l.owner, l.payer.Org)
	l.must(err)
	switch {
	case int64(b.Settled) != l.charged || int64(b.Cap-b.Settled) != l.balance():
		l.rt.Fatalf("after %q: settled %s of %s, want %s and %s left", after, b.Settled, b.Cap, money.Nano(l.charged), money.Nano(l.balance()))
	case b.Outstanding < 0 || int64(b.Available) < -l.bound():
		l.rt.Fatalf("after %q: %+v, may be below zero by %s at most", after, b, money.Nano(l.bound()))
	}
	for i, a := range l.gates {
		if s := a.Stats(); s.Misuses != 0 {
			l.rt.Fatalf("after %q: gateway %d: %+v", after, i, s)
		}
	}
}

// books are the accounts of the customer, those too that the model alone knows.
func (l *life) books() map[ledger.Account]int64 {
	books := map[ledger.Account]int64{}
	for a := range l.account {
		books[a] = 0
	}
	l.must(l.in(l.ctx, func(tx pgx.Tx) error {
		balances, err := ledger.Balances(l.ctx, tx, l.payer.Org)
		for a, n := range balances {
			books[a] = int64(n)
		}
		return err
	}))
	return books
}

// movements are the transactions since the last look that the model does not foresee.
func (l *life) movements() (list []movement) {
	const sql = `SELECT t.id, t.kind, coalesce(k.key, (SELECT min(g.idempotency_key) FROM ledger_lot_moves v JOIN credit_grants g ON g.org_id = v.org_id AND g.id = v.lot_id
		WHERE v.org_id = t.org_id AND v.day = t.day AND v.txn_id = t.id), ''), e.account, e.amount_nano
		FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id LEFT JOIN ledger_keys k ON k.org_id = t.org_id AND k.txn_id = t.id
		WHERE t.org_id = $1 AND t.kind IN ('topup', 'refund', 'expiry', 'adjustment') ORDER BY t.id`
	var at []ids.ID
	l.must(l.in(l.ctx, func(tx pgx.Tx) error {
		list, at = nil, nil
		rows, err := tx.Query(l.ctx, sql, l.payer.Org)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id ids.ID
			var x movement
			var a ledger.Account
			var n int64
			if err := rows.Scan(&id, &x.kind, &x.key, &a, &n); err != nil {
				return err
			}
			if len(at) == 0 || at[len(at)-1] != id {
				x.entries = map[ledger.Account]int64{}
				list, at = append(list, x), append(at, id)
			}
			list[len(list)-1].entries[a] += n
		}
		return rows.Err()
	}))
	fresh := list[:0]
	for i, x := range list {
		if !l.seen[at[i]] {
			l.seen[at[i]] = true
			fresh = append(fresh, x)
		}
	}
	return fresh
}

// finish ends everything that runs, hears everything that is to be heard, and proves the whole way.
func (l *life) finish() {
	for len(l.requests) > 0 {
		if l.chance("released", 3) {
			l.release()
		} else {
			l.settle()
		}
	}
	l.fenceDead()
	l.check("the fence")
	l.write(l.pending)
	l.pending = nil
	l.check("the end of the log")
	for i := range l.gates {
		l.close(i)
	}
	l.fenceDead()
	l.check("everybody left")
	if l.chance("pages end", 2) {
		l.pagesEnd()
	}
	l.compare()
	l.compare()
	l.check("the comparison")
	l.passEnds()
	l.check("the end of credit")
	l.everythingIsBack()
	l.everySaleIsWhatThePayerSees()
	l.everySumIsTheSame()
	l.everyMonthIsInvoiced()
	l.check("the invoices")
	l.everythingIsSound()
}

// everythingIsBack: no gateway has anything left.
func (l *life) everythingIsBack() {
	var budgets, allotments, aside int64
	l.must(l.read(`SELECT (SELECT count(*) FROM budgets WHERE org_id = $1 AND outstanding_nano <> 0),
		(SELECT count(*) FROM allotments WHERE org_id = $1 AND allotted_nano <> used_nano + returned_nano),
		(SELECT count(*) FROM quarantine WHERE org_id = $1 AND resolved_at IS NULL)`, []any{l.payer.Org}, &budgets, &allotments, &aside))
	if budgets+allotments+aside != 0 {
		l.rt.Fatalf("%d budgets and %d allotments hold something, %d events wait for a decision", budgets, allotments, aside)
	}
	lots := map[ledger.Account]int64{}
	l.must(l.in(l.ctx, func(tx pgx.Tx) error {
		list, err := ledger.Lots(l.ctx, tx, l.payer.Org)
		for _, x := range list {
			lots[x.Account] += int64(x.Remaining)
			if !x.ExpiresAt.IsZero() && l.balance() > 0 { // what is owed may keep credit from ending
				return fmt.Errorf("credit that ends at %s is there still: %s", x.ExpiresAt, x.Remaining)
			}
		}
		return err
	}))
	for _, a := range []ledger.Account{ledger.PrepaidPaid, ledger.PrepaidPromo} {
		if want := max(0, -l.account[a]); lots[a] != want {
			l.rt.Fatalf("lots of %s: %d, want %d", a, lots[a], want)
		}
	}
}

// everySaleIsWhatThePayerSees: credit once for money that came, and what went back is gone.
func (l *life) everySaleIsWhatThePayerSees() {
	for _, s := range l.pages {
		if s.credited != s.paid || s.charged != s.paid || s.clawed != s.back()*nanoPerCent {
			l.rt.Fatalf("a top-up of %d cents, %d back at the payment provider: %+v", s.cents, s.back(), s)
		}
	}
}

var operator = tenants.Actor{Operator: true, Token: "ann"}
