package sim

import (
	"net/http"
	"sync/atomic"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// answering is one request being answered: its sequences and what of them has been shown.
type answering struct {
	e       *Engine
	q       *request
	traits  traits
	faults  Faults
	rank    *rank
	seqs    []*sequence
	choices []choice
	wake    chan struct{}

	cancelled atomic.Bool // by its id: it ends as aborted

	prompt int    // tokens of all prompts
	sent   int    // tokens shown, of all choices
	struck int    // tokens shown when the last fault struck
	head   []byte // start of every chunk, up to the choices
	buf    []byte // chunks not yet written
}

// choice is what has been shown of one sequence.
type choice struct {
	sent  int // tokens
	bytes int // of content
}

// begin queues the sequences of a request.
func (e *Engine) begin(q *request) (*answering, error) {
	a := &answering{e: e, q: q, traits: e.voice.traits(), wake: make(chan struct{}, 1)}
	for _, ids := range q.prompts {
		a.prompt += len(ids)
		for i := range q.n {
			s := &sequence{prompt: len(ids), answer: e.write(q, ids, i), salt: q.salt, rank: q.rank, remote: q.taken, wake: a.wake}
			s.target = min(s.answer.total, q.maxTokens)
			if e.role() == rolePrefill {
				s.target = min(s.target, 1)
			}
			if i == 0 {
				s.lend = q.offer
			}
			s.ids = append(make([]uint32, 0, len(ids)+min(s.target, maxReserved)), ids...)
			a.seqs = append(a.seqs, s)
		}
	}
	a.choices = make([]choice, len(a.seqs))
	if e.dead.Load() {
		return nil, errDead()
	}
	a.rank = e.rankFor(q)
	if !a.rank.sched.submit(a.seqs) {
		e.stats.rejected.Add(1)
		return nil, fault.New(fault.Unavailable, "The engine's queue is full.")
	}
	return a, nil
}

// maxReserved bounds the memory reserved at once for an answer's tokens.
const maxReserved = 4096

// next waits until there is a token to show or everything has ended; false when the client left.
func (a *answering) next(r *http.Request) bool {
	select {
	case <-r.Context().Done():
		return false
	case <-a.wake:
		return true
	}
}

// progress tells whether all sequences have ended and been shown, and whether all reached their end.
func (a *answering) progress() (ended, whole bool) {
	ended, whole = true, true
	for i, s := range a.seqs {
		done := s.done.Load()
		n := int(s.produced.Load())
		ended = ended && done && a.choices[i].sent == n
		whole = whole && n == s.target
	}
	return ended, whole
}

// finish is why a sequence that reached its target ended.
func (a *answering) finish(s *sequence) (reason, stop string) {
	switch {
	case int(s.produced.Load()) < s.target: // cancelled
		return "abort", ""
	case s.answer.total > s.target:
		return "length", ""
	case s.answer.stop != "":
		return "stop", s.answer.stop
	case a.q.ignoreEnd && s.target == a.q.maxTokens:
		return "length", ""
	case s.answer.calls > 0 && a.q.chat:
		return "tool_calls", ""
	}
	return "stop", ""
}

// shown is the part of a content token that is shown: all of it, but for what follows a stop string's begin.
func (c *choice) shown(s *script, p *piece) string {
	if s.stop == "" {
		return p.json
	}
	left := s.cut - c.bytes
	c.bytes += len(p.text)
	switch {
	case left <= 0:
		return ""
	case left >= len(p.text):
		return p.json
	}
	quoted := scan.Quote(nil, p.text[:left])
	return string(quoted[1 : len(quoted)-1])
}

// cached is the prompt tokens found in the cache, once per prompt.
func (a *answering) cached() (n int64) {
	if a.q.taken && a.e.role() == roleDecode {
		return int64(a.prompt) // to a decode engine all that was fetched is cached
	}
	for i := 0; i < len(a.seqs); i += a.q.n {
		n += a.seqs[i].cached.Load()
	}
	return n
}

// reasoning is the reasoning tokens among those shown.
func (a *answering) reasoning() (n int) {
	for i, s := range a.seqs {
		n += s.answer.reasoningTokens(a.choices[i].sent)
	}
	return n
}

// appendUsage writes the usage object of what has been shown so far.
func (a *answering) appendUsage(b []byte) []byte {
	prompt, generated, cached := int64(a.prompt), int64(a.sent), a.cached()
	if a.faults.AbsurdUsage {
		generated, cached = -generated-1, prompt*1000
	}
	return a.e.voice.usage(b, counted{prompt: prompt, cached: cached, generated: generated, reasoning: int64(a.reasoning()), thinks: a.q.think})
}
