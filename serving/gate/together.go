package gate

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/internal/upstream"
	"millrace/serving/route"
)

// Bounds that are no settings.
const (
	blameWait   = 200 * time.Millisecond // for P's leg to say that it was P, when D has failed
	callOffTime = 2 * time.Second        // for an engine's own verb
)

// together asks both at once.
func (p *pairing) together(attempt ids.ID, body []byte) (ended bool, err error) {
	r, t := p.r, p.r.t
	ctx, enough := context.WithCancel(r.ctx)
	defer enough()
	p.leg = p.start(attempt, body, enough)
	began := true
	defer func() { p.leg.leave(began, t.gate.Times.Trail) }()
	ended, err = p.decode(ctx, p.unit.Handoff.Decode(nil, t.body.text, p.over, nil), p.by(t.gate.Times.Prefill+t.gate.Times.Transfer))
	switch {
	case ended:
		return true, err
	case r.ctx.Err() != nil, p.leg.arrived():
		return false, p.lost(err)
	}
	began = mayHaveTaken(err)
	switch l := p.leg; {
	case !l.wait(blameWait) && upstream.IsTimeout(err):
		return false, &legError{engine: p.d.ID, index: len(t.attempts) - 1, either: true, cause: err}
	case !l.ended():
	case l.err == nil && l.handed.Complete:
		return r.prefillAnswered(l.answer)
	case l.err != nil:
		return p.withoutPrefill(l.err)
	}
	return false, p.lost(err)
}

// mayHaveTaken reports whether D may have begun to take the cache before it failed.
func mayHaveTaken(err error) bool {
	var connect *upstream.ConnectError
	var refused *rejected
	return !errors.As(err, &connect) && !errors.Is(err, upstream.ErrStale) && (!errors.As(err, &refused) || refused.status >= http.StatusInternalServerError && refused.status != http.StatusServiceUnavailable)
}

// decode asks D and relays its answer. When it comes to nothing, or the client leaves, D is told by its own verb, too.
func (p *pairing) decode(ctx context.Context, body []byte, by time.Time) (ended bool, err error) {
	r, t := p.r, p.r.t
	attempt := ids.New()
	t.attempts = append(t.attempts, usage.Attempt{ID: attempt, Unit: p.d.ID, Leg: usage.LegDecode})
	r.firstBy, r.now = by, t.gate.Clock.Now()
	q := upstream.Request{Head: p.d.Head(t.req.Chat.Task.Path()), Extra: extra(p.d, attempt, route.AnyRank), Body: body, ConnectIn: t.gate.Times.Connect, HeadBy: by}
	x, err := p.d.Pool().Post(ctx, q)
	if err != nil {
		p.callOff()
		return false, err
	}
	defer x.Close()
	if x.Status != http.StatusOK || !isEventStream(x.ContentType) {
		return false, t.refused(x)
	}
	r.exchange = x
	if ended, err = r.stream(); !ended || r.ctx.Err() != nil {
		x.Close()
		p.callOff()
	}
	return ended, err
}

// callOff tells D by its own verb that nobody waits any more. Closing the connection has told it already, where it listens.
func (p *pairing) callOff() {
	g, abort, d := p.r.t.gate, p.unit.Handoff.Abort(p.over), p.d
	if abort.Path == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.r.ctx), callOffTime)
	g.enterLeg()
	go func() {
		defer g.leaveLeg()
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Base+abort.Path, bytes.NewReader(abort.Body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if resp, err := d.Client().Do(req); err == nil { // an engine that has gone needs not be told
			_ = resp.Body.Close()
		}
	}()
}

// collect waits for what P says of the prompt, when the answer has ended before it.
func (p *pairing) collect(most time.Duration) {
	if l := p.leg; l != nil && p.r.t.meter.prompt == nil && l.wait(most) && l.err == nil {
		p.took(&l.handed)
	}
}
