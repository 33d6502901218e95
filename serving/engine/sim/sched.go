package sim

import (
	"context"
	"slices"
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
	rank   int           // lower ones are served first
	root   uint64        // of its hash chain
	remote bool          // the prompt's cache arrives by transfer from a prefill engine
	lend   *offer        // its cache is kept for a peer
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
	waiting []*sequence // by rank, then in order of arrival; ended ones are passed over
	inLine  int         // waiting ones that have not ended
	plan    []planned   // of the current step
	offers  offers
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
		at := len(q.waiting)
		for at > 0 && q.waiting[at-1].rank > s.rank {
			at--
		}
		q.waiting = slices.Insert(q.waiting, at, s)
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
	if s.lend != nil && int(s.produced.Load()) >= s.target && !isClosed(s.lend.ready) {
		q.keep(s)
	} else {
		q.cache.release(s.held)
	}
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
