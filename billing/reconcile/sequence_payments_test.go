package reconcile_test

import (
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"millrace/billing/inbox"
	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/internal/ids"
)

func (l *life) openPage() {
	if len(l.pages) >= 4 {
		return
	}
	s := &sale{id: ids.New(), cents: topup.MinCents + l.amount("cents", 800), open: true}
	for range l.draw("the form is sent", 1, 2) {
		_, err := l.topups.Start(l.ctx, l.owner, topup.NewTopup{Org: l.payer.Org, ID: s.id, Cents: s.cents})
		l.must(err)
	}
	l.must(l.read("SELECT session_id FROM topups WHERE id = $1", []any{s.id}, &s.session))
	l.sales[s.id], l.pages = s, append(l.pages, s)
}

// among picks a top-up that is so.
func (l *life) among(is func(s *sale) bool) *sale {
	return one(l, "top-up", slices.DeleteFunc(slices.Clone(l.pages), func(s *sale) bool { return !is(s) }))
}

func (l *life) payPage() {
	if !slices.ContainsFunc(l.pages, func(s *sale) bool { return s.open }) {
		l.openPage()
	}
	s := l.among(func(s *sale) bool { return !s.paid && !s.later })
	if s == nil {
		return
	}
	way := stripefake.Way{Number: rapid.SampledFrom([]string{stripefake.CardGood, stripefake.CardGood, stripefake.CardGood, stripefake.CardDeclined}).Draw(l.rt, "card")}
	way.Later = way.Number == stripefake.CardGood && l.chance("later", 4)
	problem := l.fake.Pay(s.session, way)
	if want := s.open && way.Number == stripefake.CardGood; want != (problem == "") {
		l.rt.Fatalf("the page is open: %t, and says %q", s.open, problem)
	}
	if problem != "" {
		return
	}
	x, err := l.gateway.Session(l.ctx, s.session)
	l.must(err)
	s.payment, s.open, s.later, s.paid = x.Payment, false, way.Later, !way.Later
}

func (l *life) arrive() {
	if s := l.among(func(s *sale) bool { return s.later }); s != nil {
		s.later, s.paid = false, l.chance("it arrives", 2)
		if !l.fake.Settle(s.session, s.paid) {
			l.rt.Fatal("no money is on its way")
		}
	}
}

// refundable lets something be paid, and mostly heard, where nothing is that could go back.
func (l *life) refundable(is func(s *sale) bool) *sale {
	if !slices.ContainsFunc(l.pages, is) {
		l.payPage()
		l.webhooks()
	}
	return l.among(is)
}

func (l *life) refund() {
	s := l.refundable(func(s *sale) bool { return s.paid && s.back() < s.cents })
	if s == nil {
		return
	}
	cents := max(1, l.amount("refund", s.cents-s.back()))
	l.must(l.fake.Refund(s.payment, cents))
	s.refunds = append(s.refunds, cents)
	s.most = max(s.most, s.back())
}

func (l *life) refundFails() {
	if !slices.ContainsFunc(l.pages, func(s *sale) bool { return len(s.refunds) > 0 }) {
		l.refund()
	}
	if s := l.among(func(s *sale) bool { return len(s.refunds) > 0 }); s != nil {
		l.must(l.fake.FailRefund(s.payment))
		s.refunds = s.refunds[:len(s.refunds)-1]
	}
}

func (l *life) dispute() {
	if s := l.refundable(func(s *sale) bool { return s.paid && !s.everDisputed }); s != nil {
		l.must(l.fake.Dispute(s.payment))
		s.everDisputed, s.disputed, s.pending = true, true, true
		s.most = max(s.most, s.back())
	}
}

func (l *life) disputeEnds() {
	if !slices.ContainsFunc(l.pages, func(s *sale) bool { return s.pending }) {
		l.dispute()
	}
	if s := l.among(func(s *sale) bool { return s.pending }); s != nil {
		won := l.chance("won", 2)
		l.must(l.fake.CloseDispute(s.payment, won))
		s.pending, s.disputed = false, !won
	}
}

func (l *life) comeBack() {
	if s := one(l, "top-up", l.pages); s != nil {
		_, err := l.topups.Fulfil(l.ctx, l.payer.Org, s.id)
		l.must(err)
	}
}

// webhooks delivers what the payment provider has to tell: shuffled, some twice, some never.
func (l *life) webhooks() {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(l.rt, "delivery"), 0))
	var list []stripefake.Message
	for _, m := range l.fake.Messages()[l.heard:] {
		list = append(list, slices.Repeat([]stripefake.Message{m}, random.IntN(3))...)
	}
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, m := range list {
		e, err := l.gateway.Parse(m.Body, m.Signature)
		l.must(err)
		_, err = l.inbox.Store(l.ctx, inbox.Webhook, e)
		l.must(err)
	}
	l.workOff()
}

func (l *life) workOff() {
	for {
		worked, err := l.inbox.One(l.ctx)
		l.must(err)
		if !worked {
			return
		}
	}
}

func (l *life) compare() {
	c, err := l.topups.Compare(l.ctx, l.inbox)
	if l.must(err); len(c.Differences) > 0 {
		l.rt.Fatalf("the payment provider's lists differ: %+v", c)
	}
	l.workOff()
}

func (l *life) pagesEnd() {
	l.pay.Advance(pageLife)
	l.fake.Advance(0)
	for _, s := range l.pages {
		s.open = false
	}
}
