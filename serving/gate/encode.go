package gate

import (
	"context"
	"sync"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/protocol"
	"millrace/serving/route"
)

// Encoder legs of one request.
const (
	maxEncoded     = 8 // images; with more of them prefill engines encode all themselves
	encodersAtOnce = 8
	encodeTries    = 2 // encoders for one image
)

// encode lets encoders take the prompt's images, each by a leg of its own, and gives what the prefill engine is told of them;
// nil = it encodes them itself, as it does with those that no encoder took.
func (p *pairing) encode() []byte {
	r, t := p.r, p.r.t
	e, can := p.unit.Driver.(engine.Encoding)
	encoders := p.encoders()
	if !can || len(encoders) == 0 || t.req.Chat.Task != protocol.TaskChat {
		return nil
	}
	bodies, fits := e.Encode(t.body.text, p.over.IDs.Request, maxEncoded)
	if !fits || len(bodies) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(r.ctx, p.by(t.gate.Times.Prefill))
	defer cancel()
	answers, tries := make([][]byte, len(bodies)), make([][]usage.Attempt, len(bodies))
	places := make(chan struct{}, encodersAtOnce)
	var running sync.WaitGroup
	for i := range bodies {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			_ = guarded(func() error { // without an answer the prefill engine looks at the image itself
				answers[i], tries[i] = p.encodeOne(ctx, encoders, i, bodies[i])
				return nil
			})
		})
	}
	running.Wait()
	for i, tried := range tries {
		t.attempts = append(t.attempts, tried...)
		if answers[i] == nil {
			t.gate.stats.unencoded.Add(1)
		}
	}
	return e.Encoded(answers)
}

// encoders are those that may take work.
func (p *pairing) encoders() (ready []*catalogue.Unit) {
	for _, u := range p.unit.Parts {
		if u.Role == engine.Encoder && p.r.t.gate.Router.Ready(u.ID, u.Attached) {
			ready = append(ready, u)
		}
	}
	return ready
}

// encodeOne tries one encoder after another, beginning with another one for each image.
func (p *pairing) encodeOne(ctx context.Context, encoders []*catalogue.Unit, item int, body []byte) (answer []byte, tried []usage.Attempt) {
	t := p.r.t
	for try := range min(encodeTries, len(encoders)) {
		u := encoders[(item+try+p.index)%len(encoders)]
		a := usage.Attempt{ID: ids.New(), Unit: u.ID, Leg: usage.LegEncode}
		answer, err := t.ask(ctx, u, a.ID, route.AnyRank, body, p.by(t.gate.Times.Prefill))
		if err == nil {
			return answer, append(tried, a)
		}
		a.Note = t.classify(err).note
		tried = append(tried, a)
	}
	return nil, tried
}
