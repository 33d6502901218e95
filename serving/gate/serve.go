package gate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/gate/cork"
	"millrace/serving/internal/upstream"
	"millrace/serving/protocol"
	"millrace/serving/route"
)

// maxRetries is how many further tries there are before the first token.
const maxRetries = 2

// scratch is what requests use one after another.
type scratch struct {
	events          protocol.Events
	out, body, kept []byte
	rest            [512]byte // read and thrown away
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// maxPooled bounds the buffers that a pool keeps, in bytes.
const maxPooled = 256 << 10

// Serve gets the answer from an engine and writes it. An error means that nothing was written: the caller says it in its
// dialect. The context is the client's: when it ends, the engine is told at once. Whatever happens, the hold is settled
// and one usage event is written. When the answer must be cut off, Serve panics with http.ErrAbortHandler.
func (t *Ticket) Serve(ctx context.Context, w http.ResponseWriter) error {
	defer t.gate.leave()
	defer t.release()
	r := relay{t: t, ctx: ctx, w: w, scratch: t.scratch, out: t.scratch.out[:0]}
	r.flusher, _ = w.(http.Flusher)
	r.cork = cork.From(ctx)
	if n := t.req.Chat.N; n > 1 {
		t.meter.choices = make([]int64, n)
	}
	err := r.runGuarded()
	t.scratch.out = r.out
	if r.answer != nil {
		r.answer.Release()
	}
	t.lease.Done(r.used.Tokens())
	if r.cut {
		panic(http.ErrAbortHandler) // the only way to end an answer that must not look whole
	}
	return err
}

// release gives the buffers back.
func (t *Ticket) release() {
	for _, free := range t.fetched {
		free()
	}
	s := t.scratch
	t.scratch = nil
	s.body, s.kept = t.body.text, t.meter.kept
	for _, b := range []*[]byte{&s.out, &s.body, &s.kept} {
		if cap(*b) > maxPooled {
			*b = nil
		}
	}
	s.events.Reset()
	scratches.Put(s)
}

// runGuarded runs, and ends the request as a failure of ours when that panics: money and places are never left behind.
func (r *relay) runGuarded() (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		slog.Error("a request panicked", "request_id", ids.Format(ids.Request, r.t.req.ID), "panic", p, "stack", string(debug.Stack()))
		r.answer, r.cut = nil, r.committed // what is broken goes to no pool, and must not look whole
		status := http.StatusInternalServerError
		if r.committed {
			status = http.StatusOK
		}
		if !r.settled {
			r.end(usage.FailedUnbilled, status, count{}, route.Cancelled)
		}
		err = fault.Of(fmt.Errorf("gate: panic: %v", p))
	}()
	return r.run()
}

// run tries units until one has begun to answer, and sees that answer to its end.
func (r *relay) run() error {
	t := r.t
	for ; ; r.try++ {
		ended, err := r.attempt(t.unit(t.booking.Unit))
		if ended {
			return err
		}
		failed := r.abandon(err)
		if r.adapt(err) {
			failed.retry, failed.same = true, true
		}
		if (failed.retry || t.resumed != nil) && r.try < maxRetries && !failed.left {
			if !failed.same {
				t.excluded = append(t.excluded, failed.engines...)
			}
			if next, err := t.book(r.ctx); err == nil {
				t.booking = next
				continue
			}
		}
		switch {
		case t.resumed == nil:
			return r.refuse(failed)
		case r.ctx.Err() != nil:
			return r.clientLeft()
		}
		return r.broken(err)
	}
}

// attempt makes one try. ended means that the request was ended in it, err then that nothing was written; otherwise the
// try came to nothing.
func (r *relay) attempt(u *catalogue.Unit) (ended bool, err error) {
	if u.Handoff != nil {
		return r.attemptPair(u)
	}
	return r.single(u)
}

// single is an attempt at one engine that does all of it.
func (r *relay) single(u *catalogue.Unit) (ended bool, err error) {
	t := r.t
	if len(t.attempts) > 0 || t.body.driver != u.Driver || t.body.model != u.UpstreamModel {
		if err := t.body.prepare(t, u, ids.New()); err != nil {
			return false, err
		}
	}
	t.attempts = append(t.attempts, usage.Attempt{ID: t.body.attempt, Unit: u.ID})
	r.begin(u)
	r.now = t.gate.Clock.Now()
	embedding := t.req.Chat.Task == protocol.TaskEmbedding
	x, err := u.Pool().Post(r.ctx, upstream.Request{Head: u.Head(t.req.Chat.Task.Path()), Extra: extra(u, t.body.attempt, t.booking.Rank), Body: t.body.text,
		ConnectIn: t.gate.Times.Connect, HeadBy: r.now.Add(t.gate.Times.FirstToken)})
	if err != nil {
		return false, err
	}
	defer x.Close()
	if x.Status != http.StatusOK || isEventStream(x.ContentType) == embedding {
		return false, t.refused(x)
	}
	r.exchange = x
	if embedding {
		return r.embed()
	}
	return r.stream()
}

// begin makes the state of one attempt.
func (r *relay) begin(u *catalogue.Unit) {
	t := r.t
	r.unit, r.out, r.simulated = u, r.out[:0], u.Driver.Family() == engine.Sim
	r.pair, r.silent, r.firstBy = nil, true, time.Time{}
	r.scratch.events.Reset()
	if t.resumed != nil {
		return // the answer goes on
	}
	t.meter.reset()
	t.promptBy, r.said = 0, r.said[:0]
	p := protocol.AnswerParams{ID: t.req.Dialect.Prefix + hexID(t.req.ID), Model: t.model.Name, Created: t.start.Unix(), N: t.req.Chat.N,
		Prompt: t.prompt, Usage: t.req.Chat.IncludeUsage, CustomTools: t.req.Chat.CustomTools, OneCall: t.req.Chat.OneCall, Legacy: t.req.Chat.Legacy}
	if t.req.Chat.TellService {
		p.Service = t.quote.Service.String()
	}
	if u.Driver.Family() == engine.LlamaCpp {
		p.Counter = "timings"
	}
	if r.answer != nil {
		r.answer.Release()
	}
	r.answer = t.req.Dialect.Answer(t.req.Chat.Stream, p)
}

// extra gives the headers of one attempt: the data-parallel rank, and its id, by which an agent's journal goes.
func extra(u *catalogue.Unit, attempt ids.ID, rank int) []byte {
	name := u.Driver.Caps().RankHeader
	ranked := name != "" && rank != route.AnyRank
	if u.Attached && !ranked {
		return nil
	}
	b := make([]byte, 0, 128)
	if ranked {
		b = strconv.AppendInt(append(append(b, name...), ": "...), int64(rank), 10)
		b = append(b, "\r\n"...)
	}
	if u.Attached {
		return b
	}
	b = append(append(append(b, wire.HeaderAttempt...), ": "...), attempt.String()...)
	return append(append(append(append(b, "\r\n"...), wire.HeaderKind...), ": "...), wire.KindServe+"\r\n"...)
}

// abandon ends the attempt's booking and says what to do next.
func (r *relay) abandon(err error) failure {
	f := r.t.classify(err)
	if r.ctx.Err() != nil {
		f = failure{fault: fault.New(fault.Unavailable, "The client has gone.").WithCause(err), note: "client left", left: !r.calledOff()}
	}
	outcome := route.Cancelled
	if f.blame {
		outcome = route.Failed
	}
	index := len(r.t.attempts) - 1
	f.engines = []ids.ID{r.t.booking.Engine}
	var leg *legError
	if errors.As(err, &leg) {
		f, outcome, index = r.legFailed(f, leg), r.blameLeg(leg, outcome), leg.index
	}
	r.t.booking.Done(outcome, -1)
	if p := r.t.booking.Prefill; p != nil {
		p.Done(route.Cancelled, -1)
	}
	if index >= 0 {
		r.t.attempts[index].Note = f.note
	}
	return f
}

func hexID(id ids.ID) string { return hex.EncodeToString(id[:]) }

// unixMS is a moment as events carry it: 0 = none. It is the start and the time that has really passed since, so that a
// clock that is set back meanwhile puts no end before its start.
func (t *Ticket) unixMS(moment time.Time) int64 {
	if moment.IsZero() {
		return 0
	}
	return t.start.Add(moment.Sub(t.start)).UnixMilli()
}
