package sim

import "time"

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
