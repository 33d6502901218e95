package topup_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"millrace/billing/inbox"
	"millrace/billing/ledger"
	"millrace/billing/stripefake"
	"millrace/billing/topup"
)

// between is a payment provider at which something happens while it is asked.
type between struct {
	topup.Gateway
	payments func() // after its payments were listed
	events   func() // before its events are
}

func (g between) Payments(ctx context.Context, since time.Time, visit func(p topup.Payment) error) error {
	err := g.Gateway.Payments(ctx, since, visit)
	if g.payments != nil {
		g.payments()
	}
	return err
}

func (g between) Events(ctx context.Context, since time.Time, visit func(e inbox.Event) error) error {
	if g.events != nil {
		g.events()
	}
	return g.Gateway.Events(ctx, since, visit)
}

// through lets the top-ups go on by another gateway.
func (w *world) through(g topup.Gateway) {
	w.topups = topup.New(topup.Config{DB: w.db, Clock: w.clock, Notify: silent{}, Gateway: g, PublicURL: consoleURL})
	w.inbox = inbox.New(w.db, w.clock, w.topups)
}

func TestOneBadTopupDoesNotEndTheComparison(t *testing.T) {
	w := newWorld(t)
	good, session := w.start(50, false)
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	bad, session := w.start(70, false) // the newer one: it is compared first
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	w.exec("update topups set session_id = 'cs_test_none' where id = $1", bad.ID)
	c, err := w.topups.Compare(t.Context(), w.inbox)
	if err != nil || c.Payments != 2 || c.Problem != "" || len(c.Differences) != 1 || !strings.Contains(c.Differences[0].What, "does not know") {
		t.Errorf("%+v, %v", c, err)
	}
	if b := w.books(); b.available != usd(50) {
		t.Errorf("%s is not credited: balance %s", good.ID, b.available)
	}
	w.sound()
}

func TestWhatIsPaidDuringAComparisonIsNoDifference(t *testing.T) {
	w := newWorld(t)
	w.funded(50, false, stripefake.CardGood)
	w.clock.Advance(10 * time.Minute)
	w.through(between{Gateway: w.gateway, payments: func() {
		w.clock.Advance(time.Minute)
		w.funded(70, false, stripefake.CardGood)
	}})
	if c, err := w.topups.Compare(t.Context(), w.inbox); err != nil || len(c.Differences) != 0 || w.books().available != usd(120) {
		t.Errorf("%+v, %v, balance %s", c, err, w.books().available)
	}
}

func TestCreditThatThePaymentProviderDoesNotListIsADifference(t *testing.T) {
	w := newWorld(t)
	w.clock.Advance(time.Hour)
	x := w.funded(50, false, stripefake.CardGood)
	w.exec("update topups set payment_id = 'pi_test_none' where id = $1", x.ID)
	w.clock.Advance(10 * time.Minute)
	c, err := w.topups.Compare(t.Context(), w.inbox)
	if err != nil || len(c.Differences) == 0 || !strings.Contains(c.Differences[len(c.Differences)-1].What, "lists no such payment") {
		t.Errorf("%+v, %v", c, err)
	}
}

// A fee is known only when the payment provider has booked the payment.
func TestAFeeThatBecomesKnownLaterIsBooked(t *testing.T) {
	w := newWorld(t)
	w.fake.HoldFees(true)
	w.funded(50, false, stripefake.CardGood)
	if b := w.books(); b.available != usd(50) || b.accounts[ledger.Fees] != 0 {
		t.Fatalf("%+v", b)
	}
	w.fake.HoldFees(false)
	if c, err := w.topups.Compare(t.Context(), w.inbox); err != nil || len(c.Differences) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if b := w.books(); b.accounts[ledger.Fees] != 175*topup.NanoPerCent { // 2.9 % of 50 dollars and 30 cents
		t.Errorf("%+v", b)
	}
	w.sound()
}

// A comparison takes minutes where there are many payments; balances are topped up meanwhile.
func TestAComparisonHoldsNobodyUp(t *testing.T) {
	w := newWorld(t)
	began, release := make(chan struct{}), make(chan struct{})
	w.through(between{Gateway: w.gateway, events: func() { close(began); <-release }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.topups.Run(ctx, w.inbox) }()
	<-began
	w.allow(stripefake.CardGood, 20, 100, 500)
	for deadline := time.Now().Add(30 * time.Second); w.books().available != usd(100); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("nothing is charged while a comparison runs")
			break
		}
	}
	cancel()
	close(release)
	if err := <-ended; err == nil {
		t.Error("it ended by itself")
	}
}
