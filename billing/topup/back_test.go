package topup_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/inbox"
	"millrace/billing/ledger"
	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// hear stores events as deliveries would, and works them off.
func (w *world) hear(list []stripefake.Message) {
	w.t.Helper()
	w.store(list)
	w.work()
}

func (w *world) store(list []stripefake.Message) {
	w.t.Helper()
	for _, m := range list {
		e, err := w.gateway.Parse(m.Body, m.Signature)
		w.must(err)
		_, err = w.inbox.Store(context.Background(), inbox.Webhook, e)
		w.must(err)
	}
}

func (w *world) work() {
	w.t.Helper()
	for {
		worked, err := w.inbox.One(context.Background())
		w.must(err)
		if !worked {
			return
		}
	}
}

func TestRefundsTakeCreditBackByTheDifference(t *testing.T) {
	w := newWorld(t)
	x := w.funded(100, false, stripefake.CardGood)
	payment := w.row(x.ID).payment
	for _, step := range []struct{ refund, left int64 }{{30, 70}, {20, 50}, {50, 0}} {
		w.must(w.fake.Refund(payment, step.refund*100))
		w.hear(w.fake.Messages()) // all of them again: the old ones are known
		if b := w.books(); b.available != usd(step.left) || b.accounts[ledger.PrepaidPaid] != -usd(step.left) {
			t.Errorf("after %d more: %s left, %s on the account", step.refund, b.available, b.accounts[ledger.PrepaidPaid])
		}
	}
	if got := w.fulfil(x.ID); got.Clawed != usd(100) || got.State != topup.Succeeded {
		t.Errorf("%+v", got)
	}
	w.sound()
}

func TestADisputeTakesSpentCreditToo(t *testing.T) {
	w := newWorld(t)
	x := w.funded(100, false, stripefake.CardGood)
	w.spend(80)
	payment := w.row(x.ID).payment
	w.must(w.fake.Dispute(payment))
	w.hear(w.fake.Messages())
	if b := w.books(); b.available != -usd(80) {
		t.Errorf("disputed: %s", b.available)
	}
	y := w.funded(100, false, stripefake.CardGood)
	if b := w.books(); b.available != usd(20) || b.accounts[ledger.PrepaidPaid] != -usd(20) {
		t.Errorf("the next top-up pays the debt first: %+v", b)
	}
	w.must(w.fake.CloseDispute(payment, true))
	w.hear(w.fake.Messages())
	if b := w.books(); b.available != usd(120) {
		t.Errorf("a won dispute: %s", b.available)
	}
	w.must(w.fake.Dispute(w.row(y.ID).payment))
	w.must(w.fake.CloseDispute(w.row(y.ID).payment, false))
	w.hear(w.fake.Messages())
	if b := w.books(); b.available != usd(20) {
		t.Errorf("a lost dispute: %s", b.available)
	}
	w.sound()
}

// memos are the lines of the ledger about what went back, oldest first.
func (w *world) memos() (out []string) {
	w.t.Helper()
	w.system(func(tx pgx.Tx) error {
		rows, err := tx.Query(context.Background(), "select memo from ledger_txns where org_id = $1 and kind = 'refund' order by id", w.org)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return out
}

func TestWhatWentBackAndReturnedIsSaidAsItWas(t *testing.T) {
	w := newWorld(t)
	payment := w.row(w.funded(100, false, stripefake.CardGood).ID).payment
	for _, step := range []func() error{
		func() error { return w.fake.Refund(payment, 30_00) }, func() error { return w.fake.FailRefund(payment) },
		func() error { return w.fake.Dispute(payment) }, func() error { return w.fake.CloseDispute(payment, true) },
	} {
		w.must(step())
		w.hear(w.fake.Messages())
	}
	want := []string{"Refund of a top-up, test payment", "Refund that failed: credit is back, test payment",
		"Disputed payment: credit taken back, test payment", "Disputed payment won: credit is back, test payment"}
	if got := w.memos(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	w.sound()
}

// What goes back is taken from the credit that it paid for first.
func TestARefundTakesItsOwnCredit(t *testing.T) {
	w := newWorld(t)
	x := w.funded(100, false, stripefake.CardGood)
	y := w.funded(50, false, stripefake.CardGood)
	w.must(w.fake.Refund(w.row(y.ID).payment, 40_00))
	w.hear(w.fake.Messages())
	w.system(func(tx pgx.Tx) error {
		lots, err := ledger.Lots(context.Background(), tx, w.org)
		for i, want := range []struct {
			topup ids.ID
			left  money.Nano
		}{{x.ID, usd(100)}, {y.ID, usd(10)}} {
			var grant ids.ID
			key := "topup:" + ids.Format(ids.Topup, want.topup) + ":credit"
			if err := tx.QueryRow(context.Background(), "select id from credit_grants where org_id = $1 and idempotency_key = $2", w.org, key).Scan(&grant); err != nil {
				return err
			}
			if len(lots) != 2 || lots[i].ID != grant || lots[i].Remaining != want.left {
				t.Errorf("lot %d: %+v", i+1, lots[i])
			}
		}
		return err
	})
	w.sound()
}

func TestWhatWasNotAskedForGivesNoCredit(t *testing.T) {
	w := newWorld(t)
	x, session := w.start(50, false)
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	w.exec("update topups set cents = 900000 where id = $1", x.ID) // as if the page had been made for another sum
	w.hear(w.fake.Messages())
	if b := w.books(); b.cap != 0 {
		t.Errorf("credit of %s", b.cap)
	}
	dead, err := w.inbox.Waiting(t.Context(), operator)
	if err != nil || len(dead) == 0 || dead[0].State != "dead" || !strings.Contains(dead[0].Problem, "does not match") {
		t.Errorf("%+v, %v", dead, err)
	}
	if _, err := w.topups.Compare(t.Context(), w.inbox); err != nil {
		t.Error(err)
	}
	w.clock.Advance(10 * time.Minute)
	c, err := w.topups.Compare(t.Context(), w.inbox)
	if err != nil || len(c.Differences) != 1 || !strings.Contains(c.Differences[0].What, "paid $50.00") {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestTheComparisonFindsWhatNeverArrived(t *testing.T) {
	w := newWorld(t)
	x, session := w.start(50, false)
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	old := w.funded(70, false, stripefake.CardGood)
	w.must(w.fake.Refund(w.row(old.ID).payment, 2000))
	c, err := w.topups.Compare(t.Context(), w.inbox)
	if err != nil || c.Payments != 2 || c.Missed == 0 || len(c.Differences) != 0 || c.Problem != "" {
		t.Errorf("%+v, %v", c, err)
	}
	w.work()
	if got := w.fulfil(x.ID); got.State != topup.Succeeded || w.books().available != usd(100) {
		t.Errorf("%+v, balance %s", got, w.books().available)
	}
	if c, err = w.topups.Compare(t.Context(), w.inbox); err != nil || c.Missed != 0 {
		t.Errorf("a second time: %+v, %v", c, err)
	}
	last, err := w.topups.LastComparison(t.Context(), operator)
	if err != nil || last.Payments != 2 || last.At.IsZero() {
		t.Errorf("%+v, %v", last, err)
	}
	w.sound()
}

// Any order, repetition and loss of what the payment provider tells, any refunds and disputes in between: once the lists are
// compared, every top-up is credited once, what went back is taken once, and the books are sound.
func TestAnyEventsLeadToTheSameBooks(t *testing.T) {
	w := newWorld(t)
	rapid.Check(t, func(rt *rapid.T) {
		w.t = rt
		w.newOrg()
		want := money.Nano(0)
		w.heard = len(w.fake.Messages())
		for range rapid.IntRange(1, 3).Draw(rt, "topups") {
			dollars := rapid.Int64Range(5, 200).Draw(rt, "usd")
			x, session := w.start(dollars, false)
			switch rapid.IntRange(0, 3).Draw(rt, "what happens") {
			case 0: // never paid
			case 1:
				w.pay(session, stripefake.Way{Number: stripefake.CardGood})
				want += usd(dollars)
			default:
				w.pay(session, stripefake.Way{Number: stripefake.CardGood})
				want += usd(dollars) - w.goesBack(rt, session, dollars)
			}
			if rapid.Bool().Draw(rt, "comes back to the page") {
				_ = w.fulfil(x.ID)
			}
		}
		w.hear(w.mangled(rt, w.fake.Messages()[w.heard:]))
		_, err := w.topups.Compare(context.Background(), w.inbox)
		w.must(err)
		w.work()
		w.hear(w.mangled(rt, w.fake.Messages()[w.heard:]))
		if b := w.books(); b.available != want || b.accounts[ledger.PrepaidPaid] != -want {
			rt.Fatalf("balance %s, on the account %s, want %s", b.available, b.accounts[ledger.PrepaidPaid], want)
		}
	})
	w.t = t
	w.sound()
}

// goesBack gives parts of a payment back, and says how much is gone at last.
func (w *world) goesBack(rt *rapid.T, session string, dollars int64) money.Nano {
	payment := w.paymentOf(session)
	part := rapid.Int64Range(1, dollars).Draw(rt, "refund")
	w.must(w.fake.Refund(payment, part*100))
	if rapid.Bool().Draw(rt, "heard between") {
		w.hear(w.mangled(rt, w.fake.Messages()[w.heard:]))
	}
	if !rapid.Bool().Draw(rt, "disputed") {
		return usd(part)
	}
	w.must(w.fake.Dispute(payment))
	switch rapid.IntRange(0, 2).Draw(rt, "dispute") {
	case 0:
		w.must(w.fake.CloseDispute(payment, true))
		return usd(part)
	case 1:
		w.must(w.fake.CloseDispute(payment, false))
	}
	return usd(dollars)
}

// mangled loses, repeats and shuffles.
func (w *world) mangled(rt *rapid.T, list []stripefake.Message) (out []stripefake.Message) {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
	for _, m := range list {
		out = append(out, slices.Repeat([]stripefake.Message{m}, random.IntN(3))...)
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
