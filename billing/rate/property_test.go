package rate_test

import (
	"encoding/json"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/rate"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// model is the rater as simply as it can be said: one event after another, exact arithmetic, maps.
type model struct {
	rest             map[ids.ID]int64 // by budget
	done             map[ids.ID]bool
	progress         map[ids.ID]int64
	charged, overrun int64
	requests, errors int64
	usage            usage.Vector
	settled          map[ids.ID]int64
	aside            map[ids.ID]bool
}

func newModel(c *customer, allotted int64) *model {
	m := &model{rest: map[ids.ID]int64{}, done: map[ids.ID]bool{}, progress: map[ids.ID]int64{}, settled: map[ids.ID]int64{}, aside: map[ids.ID]bool{}}
	for _, b := range c.budgets {
		m.rest[b] = allotted
	}
	return m
}

// exactCost rounds half to even with big integers.
func exactCost(v usage.Vector) int64 {
	pico := new(big.Int)
	for c, n := range v {
		pico.Add(pico, new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(prices[c]))))
	}
	nano, rest := new(big.Int).QuoRem(pico, big.NewInt(1000), new(big.Int))
	if half := rest.Int64(); half > 500 || half == 500 && nano.Bit(0) == 1 {
		nano.Add(nano, big.NewInt(1))
	}
	return nano.Int64()
}

func (m *model) add(e *usage.Event) {
	if e.Usage.Tokens() > 100_000+1024 {
		m.aside[e.ID] = true
		return
	}
	if m.done[e.ID] {
		return
	}
	if e.Progress > 0 {
		m.progress[e.ID] = max(m.progress[e.ID], e.Progress)
		return
	}
	m.done[e.ID] = true
	delete(m.progress, e.ID)
	cost := exactCost(e.Usage)
	if e.Ending == usage.FailedUnbilled {
		cost = 0
	}
	charged := min(cost, int64(e.Charge))
	for _, b := range e.Budgets {
		charged = min(charged, m.rest[b])
	}
	for _, b := range e.Budgets {
		m.rest[b] -= charged
		m.settled[b] += charged
	}
	m.charged, m.overrun = m.charged+charged, m.overrun+cost-charged
	m.requests++
	if e.Ending == usage.EngineFailed || e.Ending == usage.FailedUnbilled {
		m.errors++
	}
	for c, n := range e.Usage {
		m.usage[c] += n
	}
}

func drawEvent(t *rapid.T, c *customer) *usage.Event {
	e := c.event(0)
	for class := range e.Usage {
		e.Usage[class] = rapid.Int64Range(0, 2000).Draw(t, "tokens")
	}
	e.Usage[usage.Requests] = 1
	if rapid.IntRange(0, 15).Draw(t, "huge") == 0 {
		e.Usage[usage.Output] = 200_000
	}
	cost := exactCost(e.Usage)
	e.Charge = money.Nano(rapid.SampledFrom([]int64{cost, cost, cost, cost + 1, cost / 2, 0}).Draw(t, "charge"))
	e.Ending = rapid.SampledFrom([]usage.Ending{usage.Complete, usage.Complete, usage.ClientLeft, usage.EngineFailed, usage.FailedUnbilled, usage.CapReached}).Draw(t, "ending")
	if rapid.IntRange(0, 3).Draw(t, "scopes") == 0 {
		e.Budgets = []ids.ID{c.balance} // this request had no cap on its key
	}
	return e
}

// drawLog makes a log: events, some announced by progress, some said twice, in a random order that keeps each stream's.
func drawLog(t *rapid.T, customers []*customer) (log []*usage.Event) {
	for range rapid.IntRange(1, 40).Draw(t, "requests") {
		e := drawEvent(t, customers[rapid.IntRange(0, len(customers)-1).Draw(t, "customer")])
		at := rapid.IntRange(0, len(log)).Draw(t, "at")
		for p := range rapid.IntRange(0, 3).Draw(t, "progress") {
			news := *e
			news.Progress = int64(p + 1)
			log = slices.Insert(log, at, &news)
			at = rapid.IntRange(at+1, len(log)).Draw(t, "then")
		}
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 0}).Draw(t, "ends") {
			log = slices.Insert(log, at, e)
			at = rapid.IntRange(at+1, len(log)).Draw(t, "again")
		}
	}
	return log
}

// Random requests, cut into random messages and random batches, give what the simple model gives.
func TestTheRaterAgreesWithASimpleModel(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	rapid.Check(t, func(rt *rapid.T) {
		var customers []*customer
		models := map[ids.ID]*model{}
		for range rapid.IntRange(1, 4).Draw(rt, "customers") {
			allotted := rapid.SampledFrom([]int64{0, 3_000, 20_000, usd}).Draw(rt, "allotted")
			c := w.customer(epoch, 10*usd, money.Nano(allotted))
			customers, models[c.org] = append(customers, c), newModel(c, allotted)
		}
		log := drawLog(rt, customers)
		for rest := log; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "message")
			w.raw(encode(rest[:n]))
			rest = rest[n:]
		}
		for _, e := range log {
			models[e.Org].add(e)
		}
		// A batch drops an event's repetitions, so how often it lies there depends on the cut.
		const aside = "SELECT count(DISTINCT convert_from(payload, 'UTF8')::jsonb ->> 'id') FROM quarantine"
		quarantined := w.number(aside)
		stop := w.start(w.rater(rate.Config{Batch: rapid.IntRange(1, 50).Draw(rt, "batch"), Pace: time.Duration(rapid.IntRange(1, 3000).Draw(rt, "pace")) * time.Microsecond}))
		w.settled()
		stop()
		for _, c := range customers {
			m := models[c.org]
			quarantined += int64(len(m.aside))
			org := "'" + c.org.String() + "'"
			w.want("SELECT coalesce(sum(charged_nano), 0) FROM usage_events WHERE org_id = "+org, m.charged,
				"SELECT coalesce(sum(overrun_nano), 0) FROM usage_events WHERE org_id = "+org, m.overrun,
				"SELECT coalesce(sum(requests), 0) FROM usage_rollups WHERE org_id = "+org, m.requests,
				"SELECT coalesce(sum(errors), 0) FROM usage_rollups WHERE org_id = "+org, m.errors,
				"SELECT coalesce(sum(reasoning_tokens), 0) FROM usage_rollups WHERE org_id = "+org, m.usage[usage.Reasoning],
				"SELECT settled_nano FROM budgets WHERE id = '"+c.balance.String()+"'", m.settled[c.balance],
				"SELECT settled_nano FROM budgets WHERE id = '"+c.keyCap.String()+"'", m.settled[c.keyCap],
				"SELECT coalesce(sum(progress), 0) FROM stream_progress WHERE org_id = "+org, sumProgress(m.progress))
		}
		w.want(aside, quarantined)
		if t.Failed() {
			rt.FailNow()
		}
	})
	w.sound()
}

func sumProgress(of map[ids.ID]int64) (n int64) {
	for _, p := range of {
		n += p
	}
	return n
}

func encode(events []*usage.Event) (message string) {
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		message += string(line) + "\n"
	}
	return message
}
