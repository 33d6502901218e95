package invoice

import (
	"errors"
	"sync"
	"time"

	"millrace/internal/ids"
)

// errRests is why something was not tried.
var errRests = errors.New("it failed within the last hour")

// rest is what is not tried for a while: an organization's draft of a month, a whole month (no id), or an invoice's becoming
// final (no month).
type rest struct {
	month time.Time
	id    ids.ID
}

// rests are what failed, and since when, in this process: what is slow or broken is tried once an hour, and everything else every
// minute.
type rests struct {
	mu    sync.Mutex
	since map[rest]time.Time
}

func (r *rests) begin(what rest, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since == nil {
		r.since = make(map[rest]time.Time)
	}
	r.since[what] = now
}

func (r *rests) has(what rest, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, ok := r.since[what]
	if ok && now.Sub(since) >= again {
		delete(r.since, what)
		ok = false
	}
	return ok
}

// of reports whether some organization of a month rests.
func (r *rests) of(month time.Time, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, since := range r.since {
		if what.month.Equal(month) && what.id != ids.Nil && now.Sub(since) < again {
			return true
		}
	}
	return false
}
