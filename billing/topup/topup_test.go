package topup_test

import (
	"context"
	"sync"
	"testing"

	"millrace/billing/ledger"
	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

func TestATopupBecomesCreditOnce(t *testing.T) {
	w := newWorld(t)
	x, session := w.start(50, false)
	if x.State != topup.Open || x.URL == "" {
		t.Fatalf("a new top-up is %s at %q", x.State, x.URL)
	}
	if got := w.fulfil(x.ID); got.State != topup.Open || w.books().cap != 0 {
		t.Errorf("credit before payment: %+v", got)
	}
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	for range 3 {
		if got := w.fulfil(x.ID); got.State != topup.Succeeded || got.Paid.IsZero() {
			t.Errorf("after payment: %+v", got)
		}
	}
	const fee = 175 // cents: 2.9 % of 50 dollars and 30 cents
	b := w.books()
	if b.available != usd(50) || b.accounts[ledger.PrepaidPaid] != -usd(50) || b.accounts[ledger.StripeClearing] != usd(50)-fee*topup.NanoPerCent || b.accounts[ledger.Fees] != fee*topup.NanoPerCent {
		t.Errorf("%+v", b)
	}
	if got := w.mails(); len(got) != 1 || got[0] != "Credit added: $50.00" {
		t.Errorf("mails: %q", got)
	}
	w.sound()
}

func TestTheSameFormIsOneTopup(t *testing.T) {
	w := newWorld(t)
	in := topup.NewTopup{Org: w.org, ID: ids.New(), Cents: 2500}
	first, err := w.topups.Start(t.Context(), w.owner, in)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.topups.Start(t.Context(), w.owner, in)
	if err != nil || again.URL != first.URL {
		t.Errorf("%v, %q and %q", err, first.URL, again.URL)
	}
	in.Cents++
	if _, err := w.topups.Start(t.Context(), w.owner, in); !fault.Is(err, fault.Conflict) {
		t.Errorf("another amount in the same form: %v", err)
	}
}

// together is a payment provider that opens no page before all who ask for one are there.
type together struct {
	topup.Gateway
	asking sync.WaitGroup
}

func (g *together) OpenCheckout(ctx context.Context, c topup.Checkout) (topup.Session, error) {
	g.asking.Done()
	g.asking.Wait()
	return g.Gateway.OpenCheckout(ctx, c)
}

func TestTheSameFormTwiceAtOnceLeadsToOnePage(t *testing.T) {
	w := newWorld(t)
	g := &together{Gateway: w.gateway}
	w.listen(g)
	in := topup.NewTopup{Org: w.org, ID: ids.New(), Cents: 2500}
	clicks := make([]topup.Topup, 4)
	g.asking.Add(len(clicks))
	var all sync.WaitGroup
	for i := range clicks {
		all.Go(func() {
			var err error
			if clicks[i], err = w.topups.Start(t.Context(), w.owner, in); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, x := range clicks {
		if x.State != topup.Open || x.URL == "" || x.URL != clicks[0].URL {
			t.Errorf("%s at %q, another click leads to %q", x.State, x.URL, clicks[0].URL)
		}
	}
}

func TestWhoMayTopUp(t *testing.T) {
	w := newWorld(t)
	for role, may := range map[tenants.Role]bool{tenants.Owner: true, tenants.Admin: true, tenants.Billing: true, tenants.Developer: false, tenants.Viewer: false} {
		by := tenants.Actor{User: ids.New(), Org: w.org, Role: role}
		_, err := w.topups.Start(t.Context(), by, topup.NewTopup{Org: w.org, ID: ids.New(), Cents: 1000})
		if may != (err == nil) || !may && !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: %v", role, err)
		}
	}
	other := tenants.Actor{User: ids.New(), Org: ids.New(), Role: tenants.Owner}
	x, _ := w.start(10, false)
	if _, err := w.topups.Look(t.Context(), other, w.org, x.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's owner: %v", err)
	}
	if _, err := w.topups.Look(t.Context(), other, other.Org, x.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization's top-up: %v", err)
	}
	for _, cents := range []int64{0, -1, topup.MinCents - 1, topup.MaxCents + 1} {
		if _, err := w.topups.Start(t.Context(), w.owner, topup.NewTopup{Org: w.org, ID: ids.New(), Cents: cents}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%d cents: %v", cents, err)
		}
	}
}

func TestMoneyThatArrivesLater(t *testing.T) {
	w := newWorld(t)
	x, session := w.start(30, false)
	w.pay(session, stripefake.Way{Number: stripefake.CardGood, Later: true})
	if got := w.fulfil(x.ID); got.State != topup.Processing || w.books().cap != 0 {
		t.Fatalf("a page that is through is not money: %+v", got)
	}
	w.fake.Settle(session, true)
	if got := w.fulfil(x.ID); got.State != topup.Succeeded || w.books().available != usd(30) {
		t.Errorf("%+v", got)
	}
	y, session := w.start(40, false)
	w.pay(session, stripefake.Way{Number: stripefake.CardGood, Later: true})
	w.fulfil(y.ID)
	w.fake.Settle(session, false)
	if got := w.fulfil(y.ID); got.State != topup.Failed || w.books().available != usd(30) {
		t.Errorf("money that does not arrive: %+v", got)
	}
}

func TestAPageThatIsLeftExpires(t *testing.T) {
	w := newWorld(t)
	x, _ := w.start(30, false)
	w.clock.Advance(40 * 60e9)
	if err := w.topups.Turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.fulfil(x.ID); got.State != topup.Expired || got.URL != "" {
		t.Errorf("%+v", got)
	}
}
