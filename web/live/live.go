// Package live nudges open pages over server-sent events: "your usage has changed", never the data itself.
//
// A page that hears an event fetches its own part again, so what it shows always went through the same rights and the
// same reads as the page. The hub owns subscriptions in this process; whoever hears the bus calls Publish. Invariants:
// a slow browser costs nothing (events of one name merge while it does not read), a stream ends when its session does,
// and the number of streams is bounded.
package live

import (
	"sync"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Topic is who hears an event.
type Topic string

// Fleet is the topic of the operator's pages.
const Fleet Topic = "fleet"

// Org is the topic of an organization's pages.
func Org(id ids.ID) Topic { return Topic("org:" + id.String()) }

// Event names what changed.
type Event string

// The events.
const (
	Usage  Event = "usage"  // requests were rated: balance, spend, requests
	Keys   Event = "keys"   // keys or caps changed
	Credit Event = "credit" // credit was granted
	Hosts  Event = "hosts"  // a host came, went or changed
	Units  Event = "units"  // a unit changed state or load
	Ops    Event = "ops"    // reconcile, quarantine or overruns
)

// MaxStreams is how many streams one hub carries at once.
const MaxStreams = 4096

// maxPending bounds the names a slow stream can have waiting; there are fewer names than this.
const maxPending = 16

// Hub fans events out. The zero value is not usable: call NewHub.
type Hub struct {
	mu     sync.Mutex
	subs   map[*sub]struct{}
	closed bool
}

type sub struct {
	topics  map[Topic]bool
	pending map[Event]bool
	wake    chan struct{} // one slot; closed when the hub closes
}

// NewHub makes a hub.
func NewHub() *Hub { return &Hub{subs: map[*sub]struct{}{}} }

// Publish tells every stream of the topic. It never blocks.
func (h *Hub) Publish(t Topic, e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		if !s.topics[t] || len(s.pending) >= maxPending {
			continue
		}
		s.pending[e] = true
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Close ends every stream, for a server that shuts down. Later Publish calls reach no one.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	for s := range h.subs {
		close(s.wake)
	}
	h.subs = map[*sub]struct{}{}
}

// Streams is how many streams are open.
func (h *Hub) Streams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subs)
}

func (h *Hub) join(topics []Topic) (*sub, error) {
	s := &sub{topics: map[Topic]bool{}, pending: map[Event]bool{}, wake: make(chan struct{}, 1)}
	for _, t := range topics {
		s.topics[t] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.subs) >= MaxStreams {
		return nil, fault.New(fault.Unavailable, "Live updates are not available right now.").WithRetryAfter(retry)
	}
	h.subs[s] = struct{}{}
	return s, nil
}

func (h *Hub) leave(s *sub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
}

// take empties what is pending for s.
func (h *Hub) take(s *sub) []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Event, 0, len(s.pending))
	for e := range s.pending {
		out = append(out, e)
	}
	clear(s.pending)
	return out
}
