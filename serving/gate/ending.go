package gate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/route"
)

// statusClientLeft is what the usage event says when the client had gone before an answer began.
const statusClientLeft = 499

// outputCost is what so many output tokens can cost at most, rounded up.
func (t *Ticket) outputCost(tokens int64) (money.Nano, bool) {
	most := t.quote.Most(t.bound)
	cost, ok := money.Cost(tokens, most.Dearest(usage.Output, usage.Reasoning))
	return cost.CeilNano(), ok
}

// delivered counts what the client got.
func (r *relay) delivered(complete bool) count {
	t := r.t
	if r.pair != nil {
		r.pair.collect(t.gate.Times.Report)
	}
	return r.soFar(complete)
}

// soFar counts it without waiting for anybody.
func (r *relay) soFar(complete bool) count {
	t := r.t
	return t.meter.count(r.unit.Driver, complete, t.promptEstimate(), t.booking.HitTokens, &t.quote)
}

// complete ends an answer that is whole, or was made whole at the cap.
func (r *relay) complete(ending usage.Ending) error {
	if r.t.req.Chat.Stream {
		return r.completeStream()
	}
	r.t.meter.deliver()
	c := r.delivered(ending == usage.Complete)
	r.out = r.answer.Finish(r.out[:0], r.shown(&c))
	if len(r.out) == 0 { // it has no part that may be told before the usage is safe
		r.last(r.end(ending, http.StatusOK, c, route.OK), func(dst []byte) []byte {
			dst = r.answer.End(dst)
			r.commit("application/json", len(dst))
			return dst
		})
		return nil
	}
	body := len(r.out)
	r.out = r.answer.End(r.out)
	r.commit("application/json", len(r.out))
	if err := r.write(r.out[:body]); err != nil {
		r.end(usage.ClientLeft, http.StatusOK, c, route.OK)
		return nil
	}
	r.last(r.end(ending, http.StatusOK, c, route.OK), func([]byte) []byte { return r.out[body:] })
	return nil
}

func (r *relay) completeStream() error {
	if err := r.flush(); err != nil {
		return r.clientLeft()
	}
	c := r.delivered(true)
	if r.out = r.answer.Finish(r.out, r.shown(&c)); len(r.out) > 0 {
		if !r.committed {
			r.commit(eventStream, -1)
		}
		if err := r.write(r.out); err != nil {
			r.end(usage.ClientLeft, http.StatusOK, c, route.OK) // every token was written; only the rest was not
			return nil
		}
	}
	ack := r.end(usage.Complete, http.StatusOK, c, route.OK)
	r.last(ack, r.answer.End)
	return nil
}

// shown is the usage that the client sees. What cannot be is replaced by our own count.
func (r *relay) shown(c *count) *usage.Vector {
	if !c.impossible {
		return &c.vector
	}
	return &usage.Vector{usage.Input: r.t.promptEstimate(), usage.Output: r.t.meter.pieces}
}

// clientLeft ends a request whose client has gone: it pays the prompt, if its prefill ran, and what it got. One that we called
// off pays nothing.
func (r *relay) clientLeft() error {
	if r.calledOff() {
		f := fault.New(fault.Unavailable, "The request was called off.").WithCause(r.ctx.Err())
		r.end(usage.FailedUnbilled, f.Kind.Status(), count{}, route.Cancelled)
		return f
	}
	status, c := statusClientLeft, count{}
	if r.committed {
		status = http.StatusOK
	}
	if !r.t.req.Chat.Stream { // a whole answer is delivered as it is generated: the upstream is cancelled now
		r.t.meter.deliver()
	}
	if m := &r.t.meter; m.said {
		if len(m.kept) == 0 { // nothing was written, but the prompt was computed: this counts it
			m.kept = append(m.kept, m.latest...)
		}
		c = r.delivered(false)
	}
	r.end(usage.ClientLeft, status, c, route.Cancelled)
	return nil
}

// capReached ends an answer whose hold could not be extended. A stream says so and pays for what was written; a whole
// answer is given as far as it got.
func (r *relay) capReached() error {
	f := fault.New(fault.OutOfCredit, "The balance or a spending cap was used up while the answer was being written. What was delivered is charged.").
		WithCode("insufficient_quota")
	if !fault.Is(r.extendErr, fault.OutOfCredit) {
		f = fault.New(fault.Unavailable, "No more credit can be set aside for this answer just now. What was delivered is charged.").WithCause(r.extendErr)
	}
	if !r.t.req.Chat.Stream && r.t.meter.said {
		r.answer.Limit()
		r.w.Header().Add("Millrace-Warning", "the answer was cut: no more credit could be set aside for it")
		return r.complete(usage.CapReached)
	}
	if r.flush() != nil {
		return r.clientLeft()
	}
	if !r.committed {
		r.end(usage.FailedUnbilled, f.Kind.Status(), count{}, route.Cancelled)
		return f
	}
	r.failStream(usage.CapReached, r.delivered(false), f, route.Cancelled)
	return nil
}

// broken ends an answer that the engine broke after it had begun.
func (r *relay) broken(err error) error {
	t := r.t
	if r.flush() != nil {
		return r.clientLeft()
	}
	how := t.classify(err)
	f, outcome := how.fault, route.Cancelled
	if how.blame {
		outcome = route.Failed
	}
	switch f.Kind {
	case fault.Invalid:
		f = engineFault(err) // the request was good enough to begin
	case fault.Timeout:
		f = fault.New(fault.Timeout, "The model stopped in the middle of its answer. Try again.").WithCause(err)
	}
	if n := len(t.attempts); n > 0 {
		t.attempts[n-1].Note = how.note
	}
	slog.Warn("an engine broke an answer", "request_id", ids.Format(ids.Request, t.req.ID), "unit", r.unit.Name, "cause", err)
	if !r.committed { // a whole answer: nothing of it was delivered
		r.end(usage.FailedUnbilled, f.Kind.Status(), count{}, outcome)
		return f
	}
	c := r.delivered(false)
	if t.req.Caller.FailurePolicy == policyNothing && !c.impossible {
		c.vector = usage.Vector{}
	}
	r.failStream(usage.EngineFailed, c, f, outcome)
	return nil
}

// policyNothing is the failure policy of organizations that pay nothing for an answer that an engine broke.
const policyNothing = "nothing"

// failStream ends a stream that has begun with the dialect's error.
func (r *relay) failStream(ending usage.Ending, c count, f *fault.Fault, outcome route.Outcome) {
	ack := r.end(ending, http.StatusOK, c, outcome)
	if r.write(r.answer.Fail(r.out[:0], r.t.req.Dialect.Frame(f))) == nil {
		r.last(ack, r.answer.End)
	}
}

// refuse ends a request that came to nothing.
func (r *relay) refuse(f failure) error {
	ending, status := usage.FailedUnbilled, f.fault.Kind.Status()
	if f.left {
		ending, status = usage.ClientLeft, statusClientLeft
	}
	r.settle(ending, status, count{})
	return f.fault
}

// end settles the request and ends its booking.
func (r *relay) end(ending usage.Ending, status int, c count, outcome route.Outcome) <-chan struct{} {
	ack := r.settle(ending, status, c)
	cached := int64(-1)
	if !c.estimated && !c.impossible {
		cached = c.vector[usage.Cached]
	}
	r.t.booking.Done(outcome, cached)
	if p := r.t.booking.Prefill; p != nil {
		p.Done(route.Cancelled, -1) // it ended with the first token, or has done nothing wrong
	}
	return ack
}

// settle charges the hold and hands the one usage event to the log.
func (r *relay) settle(ending usage.Ending, status int, c count) <-chan struct{} {
	t := r.t
	r.settled = true
	charge := t.charge(&c)
	t.hold.Settle(charge)
	if !c.impossible {
		r.used = c.vector
	}
	return t.gate.Log.Append(r.event(ending, status, &c, charge, 0))
}

// charge is what the counted tokens cost, never above what is held: if the bound was wrong, that is the operator's loss.
func (t *Ticket) charge(c *count) money.Nano {
	if c.impossible {
		return 0
	}
	cost, ok := t.quote.Cost(c.vector)
	if !ok {
		*c = impossible(c.raw, "it would cost more than any request can")
		return 0
	}
	return min(cost.Nano(), t.held)
}

func (r *relay) event(ending usage.Ending, status int, c *count, charge money.Nano, progress int64) *usage.Event {
	t := r.t
	q := &t.req
	t.share(c)
	attempts := t.attempts
	if n := len(attempts); n > usage.MaxAttempts {
		attempts = attempts[n-usage.MaxAttempts:]
	}
	return &usage.Event{ID: q.ID, Progress: progress, Org: q.Caller.Org, Project: q.Caller.Project, Key: q.Caller.Key,
		Model: t.model.ID, PriceVersion: t.quote.Version, Epoch: t.hold.Epoch(), Budgets: t.hold.Budgets(), OrgBudget: t.hold.OrgBudget(),
		Attempts: attempts, Usage: c.vector, Raw: c.raw, Doubt: c.doubt, Charge: charge, Ending: ending, Estimated: c.estimated,
		Streamed: q.Chat.Stream, Service: t.quote.Service, Dialect: q.Dialect.Name, Status: status,
		StartedMS: t.start.UnixMilli(), FirstTokenMS: t.unixMS(r.firstToken), EndedMS: t.unixMS(t.gate.Clock.Now())}
}

// writeProgress logs what was delivered so far: what is billed if this process dies.
func (r *relay) writeProgress() {
	t := r.t
	r.progressMark, r.progressAt = t.meter.delivered, r.now
	c := r.soFar(false)
	if c.impossible {
		return
	}
	r.progress++
	e := r.event(usage.GatewayDied, http.StatusOK, &c, t.charge(&c), r.progress)
	e.Attempts = slices.Clone(e.Attempts) // the last one may yet get a note
	t.gate.Log.Append(e)
}

// engineRest bounds the wait for the end of the engine's answer, so that its connection can be used again.
const engineRest = 20 * time.Millisecond

// last makes and writes the answer's last bytes once the usage log has acknowledged. When it does not in time, the answer is
// cut.
func (r *relay) last(ack <-chan struct{}, end func(dst []byte) []byte) {
	r.rest()
	if !r.acknowledged(ack) {
		return
	}
	bytes := end(r.out[:0])
	r.writeInTime()
	_, _ = r.w.Write(bytes) // a client that has gone got everything but the end; the server flushes what ends an answer
}

// acknowledged waits for the usage log; false when it does not answer in time, and when the client has gone meanwhile. What
// was called off by us is handed over all the same: it is charged.
func (r *relay) acknowledged(ack <-chan struct{}) bool {
	select {
	case <-ack:
		return true
	default:
	}
	bound := time.NewTimer(r.t.gate.Times.Ack)
	defer bound.Stop()
	for left := r.ctx.Done(); ; {
		select {
		case <-ack:
			return true
		case <-bound.C:
			slog.Error("the usage log did not acknowledge in time: an answer was cut", "request_id", ids.Format(ids.Request, r.t.req.ID))
			r.cut = true
			return false
		case <-left:
			if !r.calledOff() {
				return false
			}
			left = nil
		}
	}
}

// ErrCalledOff is the cause with which a request's context ends when it was we who gave it up: nothing is paid for it.
var ErrCalledOff = errors.New("gate: the request was called off")

// calledOff reports whether a request's end was ours: lines of batches are never ended by the customer.
func (r *relay) calledOff() bool {
	return r.t.req.Batch || errors.Is(context.Cause(r.ctx), ErrCalledOff)
}

// rest reads the engine's answer to its end.
func (r *relay) rest() {
	if r.exchange == nil {
		return
	}
	left := r.scratch.rest[:]
	if !r.exchange.Buffered() {
		r.exchange.Deadline(r.t.gate.Clock.Now().Add(engineRest), 0)
	}
	for range 8 {
		if _, err := r.exchange.Read(left); err != nil {
			return
		}
	}
}

func logExtend(t *Ticket, err error) {
	slog.Warn("a hold could not be extended", "request_id", ids.Format(ids.Request, t.req.ID), "cause", err)
}

const eventStream = "text/event-stream; charset=utf-8"
