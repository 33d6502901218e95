package reconcile_test

import (
	"context"
	"slices"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/billing/period"
	"millrace/billing/price"
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
	{"refund", (*life).refund}, {"dispute", (*life).dispute}, {"end credit", (*life).endCredit}, {"limit", (*life).changeLimit}, {"price", (*life).newPrice}, {"progress", (*life).progress},
	{"crash", (*life).crash}, {"give", (*life).give}, {"settle a third", (*life).settle}, {"extend", (*life).extend}, {"fence", (*life).fenceDead},
	{"pay another", (*life).payPage}, {"dispute ends", (*life).disputeEnds}, {"refund fails", (*life).refundFails}, {"money arrives", (*life).arrive},
	{"come back", (*life).comeBack}, {"compare", (*life).compare}, {"leave", (*life).leave}, {"release", (*life).release},
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

// endCredit lets so much time pass that credit ends, most of it perhaps held by a request; what gateways hold may stay.
func (l *life) endCredit() {
	if l.chance("given just before", 2) {
		l.grant(credit.Promotional, &lot{account: ledger.PrepaidPromo, amount: 1 + l.amount("credit", 4*usd), ends: true})
		l.hold()
	}
	l.passEnds()
}

func (l *life) passEnds() {
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
