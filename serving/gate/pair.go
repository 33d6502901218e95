package gate

import (
	"crypto/rand"
	"errors"
	"time"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/internal/upstream"
	"millrace/serving/protocol"
	"millrace/serving/route"
)

// pairing is one attempt at a unit of several engines: P computes the prompt, D takes its cache and answers. Its ids are its
// own; another attempt has others.
type pairing struct {
	r     *relay
	unit  *catalogue.Unit
	p, d  *catalogue.Unit
	over  engine.Handover
	index int  // of P's attempt among the ticket's
	leg   *leg // P's, where it runs beside D's; nil where D comes after it
}

// legError is an attempt's error that lies with one of a unit's engines.
type legError struct {
	engine  ids.ID
	index   int // of its attempt
	prefill bool
	either  bool // P keeps D waiting, or D P
	cause   error
}

func (e *legError) Error() string { return e.cause.Error() }
func (e *legError) Unwrap() error { return e.cause }

// errNoParams says that P answered and told nothing of where its cache is.
var errNoParams = errors.New("gate: the prefill engine told nothing for the decode engine")

// handable reports whether a request can be handed over: one prompt, one answer. Several answers would share one cache that
// is fetched once.
func (t *Ticket) handable() bool {
	chat := t.req.Chat
	return chat.N == 1 && (chat.Task == protocol.TaskChat || chat.Task == protocol.TaskText && len(chat.Messages) > 0 && chat.Messages[0] == '"')
}

// attemptPair makes one try at a unit of several engines.
func (r *relay) attemptPair(u *catalogue.Unit) (ended bool, err error) {
	t := r.t
	r.records = engine.Replayable(t.req.Chat.Body) && t.handable()
	d := u.Part(t.booking.Engine)
	if t.booking.Prefill == nil {
		return r.single(d)
	}
	p := &pairing{r: r, unit: u, p: u.Part(t.booking.Prefill.Engine), d: d}
	p.over.From = p.p.Peer
	p.over.From.Rank = t.booking.Prefill.Rank
	if p.over.IDs, err = u.Handoff.Mint(rand.Reader, p.over.From); err != nil {
		return false, err
	}
	if err := t.body.prepare(t, u, ids.New()); err != nil {
		return false, err
	}
	r.begin(d)
	r.pair = p
	body := u.Handoff.Prefill(nil, t.body.text, p.over)
	if encoded := p.encode(); encoded != nil {
		body = append(append(body[:len(body)-1], encoded...), '}')
	}
	attempt := ids.New()
	p.index = len(t.attempts)
	t.attempts = append(t.attempts, usage.Attempt{ID: attempt, Unit: p.p.ID, Leg: usage.LegPrefill})
	t.gate.stats.handed.Add(1)
	if u.Handoff.Concurrent() {
		return p.together(attempt, body)
	}
	return p.inTurn(attempt, body)
}

// inTurn asks P, then D with what P answered. Until then no transfer can have begun: a client that leaves ends P's leg, too.
func (p *pairing) inTurn(attempt ids.ID, body []byte) (ended bool, err error) {
	r, t := p.r, p.r.t
	answer, err := t.ask(r.ctx, p.p, attempt, p.over.From.Rank, body, p.by(t.gate.Times.Prefill))
	var handed engine.Handed
	if err == nil {
		handed, err = p.unit.Handoff.Read(answer)
	}
	switch {
	case err != nil:
		return p.withoutPrefill(err)
	case handed.Complete:
		return r.prefillAnswered(answer)
	case handed.Params == nil:
		t.gate.stats.untold.Add(1)
		return p.withoutPrefill(errNoParams)
	}
	p.took(&handed)
	t.booking.Prefill.FirstToken()
	ended, err = p.decode(r.ctx, p.unit.Handoff.Decode(nil, t.body.text, p.over, &handed), p.by(t.gate.Times.Transfer))
	if ended {
		return true, err
	}
	return false, p.lost(err)
}

// by is a stage's deadline, within the request's own.
func (p *pairing) by(stage time.Duration) time.Time {
	t := p.r.t
	by, first, end := t.gate.Clock.Now().Add(stage), t.start.Add(t.gate.Times.FirstToken), t.start.Add(t.gate.Times.Whole)
	if t.resumed == nil && by.After(first) {
		by = first
	}
	if by.After(end) {
		by = end
	}
	return by
}

// lost says that D is where an attempt failed.
func (p *pairing) lost(err error) error {
	return &legError{engine: p.d.ID, index: len(p.r.t.attempts) - 1, cause: err}
}

// legFailed says what to do after a leg's failure: another pair may do better, also when a stage took too long.
func (r *relay) legFailed(f failure, e *legError) failure {
	f.engines = []ids.ID{e.engine}
	if e.either {
		f.engines = r.either(e.engine)
	}
	t := r.t
	if upstream.IsTimeout(e.cause) && !f.left {
		f.retry, f.note = t.resumed != nil || t.gate.Clock.Now().Before(t.start.Add(t.gate.Times.FirstToken)), "decode timeout"
		if e.prefill {
			f.note = "prefill timeout"
		}
	}
	if f.retry && t.resumed == nil {
		t.gate.stats.again.Add(1)
	}
	return f
}

// either leaves out both engines of a pair, as far as others are left.
func (r *relay) either(d ids.ID) (out []ids.ID) {
	b := r.t.booking
	u := r.t.unit(b.Unit)
	if len(u.IDs(engine.Prefill)) > 1 && b.Prefill != nil {
		out = append(out, b.Prefill.Engine)
	}
	if out == nil || len(u.IDs(engine.Decode)) > 1 {
		out = append(out, d)
	}
	return out
}

// blameLeg ends the booking of a prefill that failed, and says how that of D ends. A D that refuses after P was fine may only
// miss what P did not give: it is left out of this request, but not out of others.
func (r *relay) blameLeg(e *legError, outcome route.Outcome) route.Outcome {
	var refused *rejected
	switch {
	case e.prefill && r.t.booking.Prefill != nil:
		r.t.booking.Prefill.Done(outcome, -1)
		return route.Cancelled
	case e.either, errors.As(e.cause, &refused):
		return route.Cancelled
	}
	return outcome
}

// took keeps what P says of its usage: the prompt is billed by it, once.
func (p *pairing) took(h *engine.Handed) {
	t := p.r.t
	if h.Reported && t.resumed == nil && t.meter.prompt == nil {
		report := h.Report
		t.meter.prompt, t.promptBy = &report, p.index+1
	}
}

// arrived is D's first token: the transfer is over, and P has done its part.
func (p *pairing) arrived() {
	cached := int64(-1)
	if by := p.r.t.meter.prompt; by != nil && by.CachedKnown && p.r.t.resumed == nil {
		cached = by.Vector[usage.Cached]
	}
	if p.leg != nil {
		p.leg.arrive()
	}
	p.r.t.booking.Prefill.Done(route.OK, cached)
}

// withoutPrefill goes on when P is lost: D computes the prompt itself where the recipe lets it, at once and under new ids;
// else the attempt has failed.
func (p *pairing) withoutPrefill(err error) (ended bool, _ error) {
	r, t := p.r, p.r.t
	f := t.classify(err)
	if r.ctx.Err() != nil || f.same || !f.retry && !upstream.IsTimeout(err) || !p.unit.Handoff.Alone() || t.prompt > p.unit.MaxPrompt {
		return false, &legError{engine: p.p.ID, index: p.index, prefill: true, cause: err}
	}
	outcome := route.Cancelled
	if f.blame {
		outcome = route.Failed
	}
	t.attempts[p.index].Note = f.note
	t.booking.DoesAll()
	t.booking.Prefill.Done(outcome, -1)
	t.gate.stats.alone.Add(1)
	r.pair = nil
	return r.single(p.d)
}

// prefillAnswered ends the request by P's answer, when that is all there is to say.
func (r *relay) prefillAnswered(answer []byte) (ended bool, err error) {
	t, p := r.t, r.pair
	mine := t.attempts[p.index]
	mine.Leg = ""
	t.attempts = append(append(t.attempts[:p.index], t.attempts[p.index+1:]...), mine) // the last one served the request
	if n := len(t.attempts) - 2; n >= p.index {
		t.attempts[n].Note = "not needed"
	}
	r.pair, r.exchange, r.unit = nil, nil, p.p
	if t.resumed == nil {
		t.meter.prompt, t.promptBy = nil, 0
	}
	chunk := engine.AsChunk(answer)
	out, step, err := r.answer.Add(r.out, chunk)
	if err != nil {
		return false, &legError{engine: p.p.ID, index: len(t.attempts) - 1, prefill: true, cause: err}
	}
	r.out, r.silent = out, false
	t.meter.add(step, chunk)
	t.meter.said = true
	r.firstToken = t.gate.Clock.Now()
	t.booking.FirstToken()
	t.booking.Prefill.Done(route.OK, -1)
	if !r.answer.Complete() {
		return false, &legError{engine: p.p.ID, index: len(t.attempts) - 1, prefill: true, cause: errNoAnswer}
	}
	return true, r.complete(usage.Complete)
}
