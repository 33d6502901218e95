package reconcile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/inbox"
	"millrace/billing/ledger"
	"millrace/billing/period"
	"millrace/billing/price"
	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/billing/usagelog"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

const gateways = 2

// life is one organization, everything that happens to it, and what the model says of it.
type life struct {
	*house
	*model
	rt       *rapid.T
	ctx      context.Context
	payer    credit.Payer
	owner    tenants.Actor
	zone     *time.Location
	began    time.Time
	product  ids.ID // the model for sale
	gates    [gateways]*credit.Allotments
	requests []*request
	pending  []*usage.Event // settled by a gateway, not in the log
	dead     []ids.ID       // epochs that ended and are not fenced
	pages    []*sale        // in order
	heard    int            // events of the payment provider that are not news
	caps     []ids.ID
	seen     map[ids.ID]bool // transactions that the model took over
}

// request is a running one.
type request struct {
	hold  *credit.Hold
	gate  int
	event usage.Event
	told  int64 // how often it told of its progress
}

// action is something that can happen.
type action struct {
	name string
	do   func(l *life)
}

func (a action) GoString() string { return a.name }

// actions: rapid draws the first ones more often.
var actions = []action{
	{"serve", (*life).serve}, {"hold", (*life).hold}, {"settle", (*life).settle}, {"rate", (*life).rateSome}, {"webhooks", (*life).webhooks}, {"pay", (*life).payPage},
	{"open a page", (*life).openPage}, {"hold again", (*life).hold}, {"settle another", (*life).settle}, {"hold more", (*life).hold}, {"rate more", (*life).rateSome},
	{"refund", (*life).refund}, {"dispute", (*life).dispute}, {"limit", (*life).changeLimit}, {"price", (*life).newPrice}, {"progress", (*life).progress},
	{"crash", (*life).crash}, {"give", (*life).give}, {"settle a third", (*life).settle}, {"extend", (*life).extend}, {"fence", (*life).fenceDead},
	{"pay another", (*life).payPage}, {"dispute ends", (*life).disputeEnds}, {"refund fails", (*life).refundFails}, {"money arrives", (*life).arrive},
	{"end credit", (*life).endCredit}, {"come back", (*life).comeBack}, {"compare", (*life).compare}, {"leave", (*life).leave}, {"release", (*life).release},
	{"cap", (*life).capKey}, {"uncap", (*life).uncap}, {"pages end", (*life).pagesEnd}, {"planned price", (*life).plannedPrice}, {"rater dies", (*life).raterDies},
}

func (l *life) must(err error) {
	l.rt.Helper()
	if err != nil {
		l.rt.Fatal(err)
	}
}

func (l *life) draw(name string, least, most int64) int64 {
	return rapid.Int64Range(least, most).Draw(l.rt, name)
}

// amount draws up to most, large and small ones alike: rapid prefers small numbers.
func (l *life) amount(name string, most int64) int64 {
	return max(0, most/16*l.draw(name, 0, 16)-l.draw(name+" less", 0, 7))
}

func (l *life) chance(name string, in int64) bool { return l.draw(name, 1, in) == in }

// one picks one of a list; nil when there is none.
func one[T any](l *life, name string, list []*T) *T {
	if len(list) == 0 {
		return nil
	}
	return list[l.draw(name, 0, int64(len(list)-1))]
}

func (l *life) openGate(i int) {
	a, err := credit.Open(l.ctx, credit.Config{DB: l.db, Bus: l.bus, Process: "sequence", LockDir: l.locks, Log: l.log.LastAcked, RecallWait: recallWait})
	l.must(err)
	l.gates[i] = a
}

// refused accepts what a customer may be told: that there is no money.
func (l *life) refused(err error) bool {
	if err != nil && !fault.Is(err, fault.OutOfCredit) {
		l.rt.Fatal(err)
	}
	return err != nil
}

func (l *life) hold() {
	gate, amount := int(l.draw("gateway", 0, gateways-1)), l.amount("hold", 8*usd)
	hold, err := l.gates[gate].Hold(l.ctx, l.payer, money.Nano(amount))
	if l.refused(err) {
		return
	}
	now := time.Now().UnixMilli()
	v := l.at(now)
	if l.chance("old schedule", 6) {
		v = l.tariffs[l.draw("version", 0, int64(len(l.tariffs)-1))]
	}
	e := usage.Event{ID: ids.New(), Org: l.payer.Org, Project: l.payer.Project, Key: l.payer.Key, Model: l.product, PriceVersion: v.id, Epoch: hold.Epoch(),
		Budgets: hold.Budgets(), OrgBudget: hold.OrgBudget(), Attempts: []usage.Attempt{{ID: ids.New(), Unit: l.unit}}, Streamed: true, Dialect: "chat", Status: 200,
		StartedMS: now, EndedMS: now + 1}
	if v.priority != 0 && l.chance("priority", 3) {
		e.Service = usage.Priority
	}
	l.requests = append(l.requests, &request{hold: hold, gate: gate, event: e})
}

// serve is a few whole requests.
func (l *life) serve() {
	for range l.draw("requests", 1, 3) {
		l.hold()
		l.settle()
	}
}

// some gives a running request, a new one when there is none; nil when that is refused.
func (l *life) some() *request {
	if len(l.requests) == 0 {
		l.hold()
	}
	return one(l, "request", l.requests)
}

func (l *life) extend() {
	if r := l.some(); r != nil {
		l.refused(r.hold.Extend(l.ctx, money.Nano(l.amount("more", 2*usd))))
	}
}

// used draws what an engine delivered.
func (l *life) used() (u usage.Vector) {
	for _, c := range []usage.Class{usage.Input, usage.Cached, usage.Output, usage.Reasoning} {
		u[c] = l.amount("tokens", 640)
	}
	u[usage.Requests] = 1
	return u
}

func (l *life) settle() {
	if r := l.some(); r != nil {
		l.end(r)
	}
}

func (l *life) end(r *request) {
	e := r.event
	e.Usage = l.used()
	e.Ending = rapid.SampledFrom([]usage.Ending{usage.Complete, usage.Complete, usage.ClientLeft, usage.CapReached, usage.EngineFailed, usage.FailedUnbilled}).Draw(l.rt, "ending")
	if e.Ending != usage.FailedUnbilled {
		e.Charge = min(r.hold.Amount(), money.Nano(l.tariff(e.PriceVersion).cost(e.Usage, e.Service)))
	}
	r.hold.Settle(e.Charge)
	l.forget(r)
	l.pending = append(l.pending, &e)
}

func (l *life) forget(r *request) {
	l.requests = slices.DeleteFunc(l.requests, func(x *request) bool { return x == r })
}

// release frees the hold of a request that was never served: one that told of its progress has an end that is paid.
func (l *life) release() {
	if r := one(l, "request", l.requests); r != nil && r.told == 0 {
		r.hold.Release()
		l.forget(r)
	}
}

// progress tells how far a stream is: what is paid if its gateway dies. It is always covered by the hold.
func (l *life) progress() {
	r := l.some()
	if r == nil {
		return
	}
	e := r.event
	e.Usage, e.Ending = l.used(), usage.GatewayDied
	if l.tariff(e.PriceVersion).cost(e.Usage, e.Service) > int64(r.hold.Amount()) {
		return
	}
	r.told++
	e.Progress = r.told
	l.pending = append(l.pending, &e)
}

// rateSome brings some of what is settled into the log, perhaps twice, and waits for the rater.
func (l *life) rateSome() {
	if len(l.pending) == 0 {
		l.settle()
	}
	n := int64(len(l.pending)) - l.draw("events wait", 0, int64(len(l.pending)))
	list := l.shuffled(l.pending[:n])
	l.pending = slices.Clone(l.pending[n:])
	if l.chance("twice", 3) {
		list = slices.Concat(list, list)
	}
	l.write(list)
}

// shuffled mixes events of different requests; those of one stay in order, as one process writes them.
func (l *life) shuffled(list []*usage.Event) (out []*usage.Event) {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(l.rt, "order"), 0))
	out = slices.Clone(list)
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	first := make(map[ids.ID]int)
	for i, e := range slices.Backward(out) {
		first[e.ID] = i
	}
	copy(out, list)
	slices.SortStableFunc(out, func(a, b *usage.Event) int { return first[a.ID] - first[b.ID] })
	return out
}

func (l *life) write(list []*usage.Event) {
	for _, e := range list {
		l.log.Append(e)
	}
	l.must(l.log.Flush(l.ctx))
	l.rated()
	for _, e := range list {
		l.rate(e)
	}
}

// crash kills a gateway. What it had not written is lost, or still on its way: to arrive before its fence, or after it.
func (l *life) crash() {
	i := int(l.draw("gateway", 0, gateways-1))
	epoch := l.gates[i].Epoch()
	gone, cancel := context.WithCancel(l.ctx)
	cancel()
	if err := l.gates[i].Close(gone, credit.LogEnd{}); err == nil {
		l.rt.Fatal("a gateway that could not reach the database left in order")
	}
	l.requests = slices.DeleteFunc(l.requests, func(r *request) bool { return r.gate == i })
	if l.chance("its last events are lost", 3) {
		l.pending = slices.DeleteFunc(l.pending, func(e *usage.Event) bool { return e.Epoch == epoch })
	}
	l.dead = append(l.dead, epoch)
	l.openGate(i)
}

// leave ends a gateway in order.
func (l *life) leave() {
	i := int(l.draw("gateway", 0, gateways-1))
	if !slices.ContainsFunc(l.requests, func(r *request) bool { return r.gate == i }) {
		l.close(i)
		l.openGate(i)
	}
}

func (l *life) close(i int) {
	epoch := l.gates[i].Epoch()
	l.writePending(epoch)
	incarnation, seq := l.log.LastAcked()
	l.must(l.gates[i].Close(l.ctx, credit.LogEnd{Incarnation: incarnation, Seq: seq}))
	l.dead = append(l.dead, epoch)
}

func (l *life) writePending(epoch ids.ID) {
	var list []*usage.Event
	l.pending = slices.DeleteFunc(l.pending, func(e *usage.Event) bool {
		if e.Epoch == epoch {
			list = append(list, e)
		}
		return e.Epoch == epoch
	})
	l.write(list)
}

func (l *life) fenceDead() {
	for _, epoch := range l.dead {
		if l.chance("last events come in time", 2) {
			l.writePending(epoch)
		}
	}
	for deadline := time.Now().Add(lookFor); len(l.dead) > 0; {
		ended, err := l.fencer.Look(l.ctx)
		l.must(err)
		for _, e := range ended {
			if i := slices.Index(l.dead, e.Epoch); i >= 0 {
				l.fence(e.Epoch)
				l.dead = slices.Delete(l.dead, i, i+1)
			}
		}
		if time.Now().After(deadline) {
			l.rt.Fatal("epochs are never fenced")
		}
	}
}

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

func (l *life) give() {
	k := rapid.SampledFrom([]credit.GrantKind{credit.Paid, credit.Promotional}).Draw(l.rt, "kind")
	x := &lot{account: ledger.PrepaidPaid, amount: 1 + l.amount("credit", 4*usd), ends: l.chance("ends", 2)}
	if k == credit.Promotional {
		x.account = ledger.PrepaidPromo
	}
	l.grant(k, x)
}

func (l *life) grant(k credit.GrantKind, x *lot) {
	in := credit.GrantInput{Org: l.payer.Org, Kind: k, Amount: money.Nano(x.amount), Reason: "test", IdempotencyKey: "grant " + ids.New().String()}
	if x.ends {
		in.ExpiresAt = time.Now().Add(creditLife)
	}
	for _, first := range []bool{true, false}[:l.draw("asked", 1, 2)] {
		_, fresh, err := l.desk.Grant(l.ctx, tenants.System(), in)
		if l.must(err); fresh != first {
			l.rt.Fatal("a grant that was asked for again was given again")
		}
	}
	l.model.give(in.IdempotencyKey, x)
}

// endCredit lets so much time pass that credit ends; what gateways hold may stay.
func (l *life) endCredit() {
	_, err := l.desk.Expire(l.ctx, time.Now().Add(creditLife+time.Hour))
	l.must(err)
}

func (l *life) changeLimit() {
	l.limit = l.amount("limit", 16*usd)
	l.highest = max(l.highest, l.limit)
	l.must(l.desk.SetCreditLimit(l.ctx, tenants.System(), l.payer.Org, money.Nano(l.limit)))
}

func (l *life) draft() price.Draft {
	p := usage.Prices{usage.Input: money.Pico(l.amount("input price", 300_000_000)), usage.Cached: money.Pico(l.amount("cached price", 100_000_000)),
		usage.Output: money.Pico(l.amount("output price", 8_000_000_000)), usage.Reasoning: money.Pico(l.amount("reasoning price", 4_000_000_000)),
		usage.Requests: money.Pico(l.amount("request price", 10_000_000_000))}
	d := price.Draft{Model: l.product, Prices: price.Every(p), Confirm: modelName(l.product)}
	if l.chance("offers priority", 2) {
		d.Terms.Priority = l.draw("percent", 50, 300)
	}
	return d
}

func (l *life) newPrice() {
	v, err := l.prices.Create(l.ctx, tenants.System(), l.draft())
	l.must(err)
	l.tariffs = append(l.tariffs, tariff{v.ID, v.EffectiveAt.UnixMilli(), v.Prices, v.Terms.Priority})
}

// plannedPrice begins after the sequence, or is cancelled: nothing may be charged by it.
func (l *life) plannedPrice() {
	d := l.draft()
	d.EffectiveAt = time.Now().Add(time.Hour + time.Duration(l.draw("second", 0, 100_000))*time.Second)
	v, err := l.prices.Create(l.ctx, tenants.System(), d)
	if fault.Is(err, fault.Conflict) { // planned for that moment before
		return
	}
	if l.must(err); l.chance("cancelled", 2) {
		_, err = l.prices.Cancel(l.ctx, tenants.System(), v.ID)
		l.must(err)
	}
}

func (l *life) capKey() {
	c := credit.Cap{Scope: credit.KeyScope, ScopeID: l.payer.Key, Amount: money.Nano(l.amount("cap", 20*usd)),
		Period: rapid.SampledFrom([]period.Kind{period.Total, period.Month, period.Day}).Draw(l.rt, "period")}
	set, err := l.desk.SetCap(l.ctx, tenants.System(), l.payer.Org, c)
	l.must(err)
	l.caps = append(slices.DeleteFunc(l.caps, func(id ids.ID) bool { return id == set.ID }), set.ID)
}

func (l *life) uncap() {
	for _, id := range l.caps {
		l.must(l.desk.RemoveCap(l.ctx, tenants.System(), l.payer.Org, id))
	}
	l.caps = nil
}

func (l *life) raterDies() {
	l.stop()
	l.must(l.startRater())
}

// rated waits until the log is rated to its end.
func (l *life) rated() {
	info, err := usagelog.Inspect(l.ctx, l.bus.JetStream())
	l.must(err)
	for deadline := time.Now().Add(lookFor); ; time.Sleep(2 * time.Millisecond) {
		var seq int64
		l.must(l.read("SELECT coalesce(max(seq), 0) FROM rater_offsets WHERE incarnation = $1", []any{info.Incarnation}, &seq))
		if seq >= int64(info.Last) {
			return
		}
		if time.Now().After(deadline) {
			l.must(errors.New("the log is never rated to its end"))
		}
	}
}
