package batch

import (
	"sync"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/gate"
)

// Lines of one model that may be in flight from this gateway.
const (
	firstRunning  = 4  // before anything is known
	rankedRunning = 64 // where engines serve lines after everything else
	unitRunning   = 16 // for each unit that ranks nothing
	blindRunning  = 2  // where nobody tells how busy the units are
)

// rooms bounds the lines in flight, by model: they have what others leave.
type rooms struct {
	mu      sync.Mutex
	models  map[string]*room
	running int
}

// verdict is what a line's end says of its model's room.
type verdict int

const (
	nothing  verdict = iota
	well             // there may be more
	strained         // there is less
)

// room is one model's: how many lines run and how many may. It grows by one with each line that ends well, shrinks to
// what runs when requests wait, and halves when the model refuses.
type room struct{ running, limit int }

// take lets one line of a model start, or says that there is no room now.
func (r *Runner) take(name string) bool {
	most := blindRunning
	busy := false
	if m, known := r.Models.Model(name); known { // one that is not is refused by the gate
		var units []ids.ID
		for _, u := range m.Units {
			for _, e := range u.Engines() {
				units = append(units, e.ID)
			}
		}
		if spare := r.Router.Spare(units); gate.Serves(m.Units, usage.Batch) {
			most = rankedRunning
		} else if spare.Ready > 0 {
			most, busy = spare.Ready*unitRunning, spare.Waiting > 0
		}
	}
	return r.rooms.take(name, most, busy)
}

func (s *rooms) take(name string, most int, busy bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.models[name]
	if m == nil {
		m = &room{limit: firstRunning}
		s.models[name] = m
	}
	if busy {
		m.limit = max(m.running, 1)
		return false
	}
	m.limit = min(m.limit, most)
	if s.running >= maxRunning || m.running >= m.limit {
		return false
	}
	m.running++
	s.running++
	return true
}

// give ends a line. A model of which none runs is forgotten once it is back at what is known of any.
func (s *rooms) give(name string, v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.models[name]
	m.running--
	s.running--
	switch v {
	case well:
		m.limit++
	case strained:
		m.limit = max(m.limit/2, 1)
	}
	if m.running == 0 && len(s.models) > maxHeld {
		delete(s.models, name)
	}
}
