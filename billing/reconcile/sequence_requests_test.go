package reconcile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/usagelog"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// request is a running one.
type request struct {
	hold  *credit.Hold
	gate  int
	event usage.Event
	told  int64 // how often it told of its progress
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

func (l *life) progress() {
	if r := l.some(); r != nil {
		l.tell(r)
	}
}

// tell says how far a stream is: what is paid if its gateway dies. The hold is extended to cover it, or it is not delivered.
func (l *life) tell(r *request) bool {
	e := r.event
	e.Usage, e.Ending = l.used(), usage.GatewayDied
	more := l.tariff(e.PriceVersion).cost(e.Usage, e.Service) - int64(r.hold.Amount())
	if more > 0 && l.refused(r.hold.Extend(l.ctx, money.Nano(more))) {
		return false
	}
	r.told++
	e.Progress = r.told
	l.pending = append(l.pending, &e)
	return true
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
	if l.chance("in the middle of a stream", 2) {
		if r := l.some(); r != nil && l.tell(r) {
			i = r.gate
			l.writePending(r.hold.Epoch())
		}
	}
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
