package sim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"millrace/serving/engine/kvevent"
)

// sequence is one answer in the making. Its owner (a request) reads produced and done, and is woken by wake; all else
// belongs to the scheduler.
type sequence struct {
	ids    []uint32 // the prompt, then what was generated
	prompt int      // tokens of the prompt
	target int      // tokens to generate
	answer *script  // what they are; read only
	salt   string
	root   uint64        // of its hash chain
	remote bool          // the prompt's cache arrives by transfer from a prefill engine
	wake   chan struct{} // capacity 1; may be shared by a request's sequences

	produced atomic.Int64 // tokens generated so far
	done     atomic.Bool  // no more will come
	cached   atomic.Int64 // prompt tokens that were found in the cache; set before the first token

	state    state
	computed int      // tokens whose cache entries exist
	held     []int32  // blocks
	hashes   []uint64 // of the whole blocks committed
	looked   bool     // the cache has been asked
	counted  bool     // its prompt is in the statistics
	queued   time.Time
}

type state uint8

const (
	waiting state = iota
	running
	ended
)

// scheduler is continuous batching: in each step every running sequence gets a token or a chunk of its prompt, waiting
// ones join while budget, slots and blocks last. One goroutine, run, makes the steps; requests only queue and abort.
type scheduler struct {
	slots  int     // most running sequences
	budget int     // most tokens computed in a step
	queue  int     // most waiting sequences
	speed  float64 // simulated time / real time; 0 = do not wait at all
	cost   Cost
	now    func() time.Time
	emit   func([]kvevent.Event) // must not block; nil = nobody listens
	stats  *stats

	kick chan struct{} // capacity 1: there is work

	mu      sync.Mutex
	cache   *cache
	running []*sequence
	waiting []*sequence // in order of arrival; ended ones are passed over
	inLine  int         // waiting ones that have not ended
	plan    []planned   // of the current step
}

// planned is one sequence's part in a step.
type planned struct {
	s      *sequence
	tokens int // to be computed
	yield  int // to be generated after that; 0 while the prompt is not complete
}

// burst is how many tokens a decode step generates when no time is simulated: steps then only cost wake-ups.
const burst = 32

// submit queues sequences, all or none; false when the queue is full.
func (q *scheduler) submit(all []*sequence) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inLine+len(all) > q.queue {
		return false
	}
	now := q.now()
	for _, s := range all {
		s.root, s.queued = q.cache.root(s.salt), now
		q.waiting = append(q.waiting, s)
	}
	q.inLine += len(all)
	select {
	case q.kick <- struct{}{}:
	default:
	}
	return true
}

// abort ends sequences at once and frees their blocks and slots.
func (q *scheduler) abort(all []*sequence) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range all {
		if s.state != ended {
			q.stats.aborted.Add(1)
			q.end(s)
		}
	}
}

// end is called with the lock held.
func (q *scheduler) end(s *sequence) {
	if s.state == waiting {
		q.inLine--
	}
	s.state = ended
	q.cache.release(s.held)
	s.held = nil
	s.done.Store(true)
	s.notify()
}

func (s *sequence) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run makes steps until ctx ends; then it ends all sequences.
func (q *scheduler) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	defer q.endAll()
	for {
		took, busy := q.start()
		if !busy {
			select {
			case <-ctx.Done():
				return
			case <-q.kick:
			}
			continue
		}
		if q.speed > 0 {
			timer.Reset(time.Duration(float64(took) / q.speed))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		} else if ctx.Err() != nil {
			return
		}
		q.finish()
	}
}

func (q *scheduler) endAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range append(append([]*sequence{}, q.running...), q.waiting...) {
		if s.state != ended {
			q.end(s)
		}
	}
}

// start plans a step; busy is false when there is nothing to do.
func (q *scheduler) start() (took time.Duration, busy bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.plan = q.plan[:0]
	q.sweep()
	var w work
	left := q.budget
	preempted := q.continueRunning(&w, &left)
	if !preempted {
		q.admitWaiting(&w, &left)
	}
	return q.cost.of(w), len(q.plan) > 0
}

// sweep drops ended sequences from the lists.
func (q *scheduler) sweep() {
	q.running = keep(q.running)
	if len(q.waiting) > 0 && q.waiting[0].state == ended || len(q.waiting) > 2*q.inLine {
		q.waiting = keep(q.waiting)
	}
}

func keep(all []*sequence) []*sequence {
	kept := all[:0]
	for _, s := range all {
		if s.state != ended {
			kept = append(kept, s)
		}
	}
	clear(all[len(kept):])
	return kept
}

// continueRunning plans the running sequences. When blocks run out the youngest is sent back to the queue's front, to
// compute again what it loses.
func (q *scheduler) continueRunning(w *work, left *int) (preempted bool) {
	for i := 0; i < len(q.running) && *left > 0; i++ {
		s := q.running[i]
		for !q.schedule(s, w, left) {
			victim := q.running[len(q.running)-1]
			q.running = q.running[:len(q.running)-1]
			q.preempt(victim)
			preempted = true
			if victim == s {
				return true
			}
		}
	}
	return preempted
}

func (q *scheduler) preempt(s *sequence) {
	q.cache.release(s.held)
	s.held, s.hashes, s.computed, s.looked, s.remote = nil, nil, 0, false, false
	s.state = waiting
	q.waiting = append([]*sequence{s}, q.waiting...)
	q.inLine++
	q.stats.preempted.Add(1)
}

func (q *scheduler) admitWaiting(w *work, left *int) {
	for len(q.waiting) > 0 && len(q.running) < q.slots && *left > 0 {
		s := q.waiting[0]
		if s.state != ended {
			if !s.looked {
				q.look(s)
			}
			if !q.schedule(s, w, left) {
				q.cache.release(s.held)
				s.held, s.hashes, s.computed, s.looked = nil, nil, 0, false
				return
			}
			q.count(s)
			s.state = running
			q.inLine--
			q.running = append(q.running, s)
		}
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
	}
}

// look finds the cached prefix. The last token of the prompt is always computed: its output is the first token.
func (q *scheduler) look(s *sequence) {
	s.looked = true
	s.held, s.hashes = q.cache.match(s.root, s.ids, len(s.ids)-1, s.held, s.hashes)
	s.computed = len(s.hashes) * q.cache.blockSize
}

// count books the prompt and its hits, once. What a transfer brought is no hit: a decode engine reports none.
func (q *scheduler) count(s *sequence) {
	if s.counted {
		return
	}
	s.counted = true
	q.stats.queries.Add(int64(s.prompt))
	if !s.remote {
		q.stats.hits.Add(int64(s.computed))
		s.cached.Store(int64(s.computed))
	}
}

// schedule plans what a sequence computes in this step; false when there are not enough blocks.
func (q *scheduler) schedule(s *sequence, w *work, left *int) bool {
	need := len(s.ids) - s.computed
	if s.remote && s.produced.Load() == 0 {
		need = 1 // all but the last token's entries arrive; their blocks are needed all the same
	}
	p := planned{s: s, tokens: min(need, *left)}
	if p.tokens == need {
		p.yield = 1
		if q.speed <= 0 {
			p.yield = min(burst, s.target-int(s.produced.Load()))
		}
	}
	upTo := s.computed + p.tokens
	if s.remote {
		upTo = max(upTo, len(s.ids))
	}
	blocks := (upTo + max(p.yield-1, 0) + q.cache.blockSize - 1) / q.cache.blockSize
	held, ok := q.cache.grow(s.held, max(blocks-len(s.held), 0))
	if !ok {
		return false
	}
	s.held = held
	if p.tokens == 1 && s.produced.Load() > 0 {
		w.addDecode(s.computed)
	} else {
		w.addPrefill(p.tokens, s.computed)
	}
	*left -= p.tokens
	q.plan = append(q.plan, p)
	return true
}

// finish books what the planned step computed, wakes the requests and tells the cache's changes.
func (q *scheduler) finish() {
	q.mu.Lock()
	for _, p := range q.plan {
		if p.s.state == running {
			q.advance(p)
		}
	}
	q.stats.steps.Add(1)
	q.tell()
	q.mu.Unlock()
}

// tell publishes the cache's changes, with the lock held: their order is the truth.
func (q *scheduler) tell() {
	if q.emit == nil {
		return
	}
	if events := q.cache.drain(); len(events) > 0 {
		q.emit(events)
	}
}

func (q *scheduler) advance(p planned) {
	s := p.s
	s.computed += p.tokens
	if s.remote { // the transfer's tokens and the one computed
		s.computed, s.remote = len(s.ids), false
	}
	first := s.produced.Load() == 0
	for i := range p.yield {
		if i > 0 {
			s.computed++
		}
		s.ids = append(s.ids, s.answer.at(int(s.produced.Load())).id)
		s.produced.Add(1)
	}
	s.hashes = q.cache.commit(s.root, s.salt, s.ids, s.computed, s.held, s.hashes)
	if p.yield == 0 {
		return
	}
	q.stats.generated.Add(int64(p.yield))
	if first {
		q.stats.prompt.Add(int64(s.prompt))
		q.stats.firstToken(q.now().Sub(s.queued))
	}
	if int(s.produced.Load()) >= s.target {
		q.stats.finished.Add(1)
		q.end(s)
		return
	}
	s.notify()
}

// load counts what a scrape shows.
func (q *scheduler) load() (running, waiting int, queuedTokens int64, usage float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.running {
		if s.state != ended {
			running++
		}
	}
	for _, s := range q.waiting {
		if s.state != ended {
			queuedTokens += int64(s.prompt)
		}
	}
	return running, q.inLine, queuedTokens, q.cache.usage()
}

// clearCache forgets unheld prefixes, as an operator may ask.
func (q *scheduler) clearCache() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cache.clear()
	q.tell()
}
