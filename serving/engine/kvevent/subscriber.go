package kvevent

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

// SubscriberConfig says where an engine's events come from.
type SubscriberConfig struct {
	Endpoint string // tcp://host:port or ipc://path
	Bind     bool   // true: listen there for the engine, which dials; false: dial the engine
	Replay   string // the engine's replay endpoint, dialled when needed; "" = none
	Topic    string // prefix of the topics to receive; "" = all
	Rank     int    // the engine's data-parallel rank that speaks there
	Epoch    uint64 // of the first update; each reset counts it up
}

// Update is what one message, or a reset, changed.
type Update struct {
	Epoch     uint64  // changes with every reset
	Reset     bool    // nothing reported before is true any more; Blocks then apply to an empty cache
	Rank      int     // the data-parallel rank that it is about, and no other
	Seq       int64   // the engine's number of the message
	BlockSize int     // tokens per block of the last stored event so far; 0 = none seen
	Blocks    []Block // in order
}

// Limits and times of a Subscriber.
const (
	replayTimeout = 10 * time.Second
	redialAfter   = 250 * time.Millisecond
	queueMessages = 1024 // received, not yet applied
)

// Subscriber follows one engine's events. It asks for replay when it starts, when the engine connects anew and when
// messages are missing; when the missing ones cannot be had, or the engine turns out to be another process, it resets.
type Subscriber struct {
	cfg   SubscriberConfig
	ln    net.Listener // when it binds
	conns sync.WaitGroup
	inbox chan inbound

	mapper    Mapper
	next      int64  // the number that is expected
	lastHash  uint64 // of the payload of message next-1, when known
	lastKnown bool
	epoch     uint64
	blockSize int
}

// inbound is what a connection's reader tells the owner: that it is connected (m.payload nil), or a message.
type inbound struct {
	connected bool
	m         message
}

// NewSubscriber prepares a subscriber and, when it binds, listens at once, so that the engine may be started after it.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	network, address, _, err := endpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	s := &Subscriber{cfg: cfg, inbox: make(chan inbound, queueMessages), epoch: cfg.Epoch}
	if cfg.Bind {
		if s.ln, err = listen(network, address); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Endpoint is where a binding subscriber listens, with the port the system chose when port 0 was asked for.
func (s *Subscriber) Endpoint() string {
	if s.ln == nil || s.ln.Addr().Network() != "tcp" {
		return s.cfg.Endpoint
	}
	return "tcp://" + s.ln.Addr().String()
}

// Run follows the engine until ctx ends, calling sink from this goroutine only. It returns ctx's error once all that it
// started has ended.
func (s *Subscriber) Run(ctx context.Context, sink func(Update)) error {
	ctx, cancel := context.WithCancel(ctx)
	s.conns.Go(func() {
		if s.ln != nil {
			s.accept(ctx)
		} else {
			s.dial(ctx)
		}
	})
	defer s.conns.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case in := <-s.inbox:
			if in.connected {
				s.resync(ctx, sink)
			} else {
				s.live(ctx, in.m, sink)
			}
		}
	}
}

// resync runs when an engine has connected. If it still has the last message that we applied, it is the same process and
// only what was missed is fetched; otherwise it starts anew.
func (s *Subscriber) resync(ctx context.Context, sink func(Update)) {
	if s.next > 0 {
		from := s.next
		if s.lastKnown {
			from--
		}
		missed, err := s.replay(ctx, from)
		if err == nil && s.lastKnown && len(missed) > 0 && missed[0].seq == from && xxhash.Sum64(missed[0].payload) == s.lastHash {
			if s.applyAll(missed[1:], sink) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
	s.startAnew(ctx, sink)
}

// live takes one published message.
func (s *Subscriber) live(ctx context.Context, m message, sink func(Update)) {
	if m.seq < s.next {
		return // a replay brought it already
	}
	if m.seq > s.next {
		missed, err := s.replay(ctx, s.next)
		if ctx.Err() != nil {
			return
		}
		if err != nil || !s.applyAll(missed, sink) || s.next < m.seq {
			s.startAnew(ctx, sink)
			s.next = max(s.next, m.seq) // what cannot be had is not waited for
		}
	}
	if m.seq == s.next {
		s.apply(m, sink)
	}
}

// startAnew resets and learns what the engine's replay buffer still has.
func (s *Subscriber) startAnew(ctx context.Context, sink func(Update)) {
	if s.next > 0 || s.blockSize > 0 {
		s.mapper.Reset()
		s.epoch++
		sink(Update{Epoch: s.epoch, Rank: s.cfg.Rank, Reset: true, BlockSize: s.blockSize, Seq: -1})
	}
	s.next, s.lastKnown = 0, false
	missed, err := s.replay(ctx, 0)
	if err != nil || len(missed) == 0 {
		return
	}
	s.next = missed[0].seq // older ones are gone from the buffer
	s.applyAll(missed, sink)
}

// applyAll applies messages that must follow one another; false when one is missing. Those already applied are passed over.
func (s *Subscriber) applyAll(all []message, sink func(Update)) bool {
	for _, m := range all {
		if m.seq < s.next {
			continue
		}
		if m.seq != s.next {
			return false
		}
		s.apply(m, sink)
	}
	return true
}

func (s *Subscriber) apply(m message, sink func(Update)) {
	s.next, s.lastHash, s.lastKnown = m.seq+1, xxhash.Sum64(m.payload), true
	batch, err := Decode(m.payload)
	if err != nil {
		return // lost to us; what it stored is a miss, what it removed is found out by the self-check of hits
	}
	u := Update{Epoch: s.epoch, Rank: s.cfg.Rank, Seq: m.seq}
	for i := range batch.Events {
		e := &batch.Events[i]
		if e.Kind == Stored && e.BlockSize > 0 {
			s.blockSize = e.BlockSize
		}
		u.Blocks = s.mapper.Apply(u.Blocks, e)
	}
	if u.BlockSize = s.blockSize; len(u.Blocks) > 0 {
		sink(u)
	}
}
