package kvevent

import (
	"context"
	"errors"
	"net"
	"sync"

	"millrace/internal/clock"
)

// PublisherConfig says how a simulated engine publishes, in vLLM's words.
type PublisherConfig struct {
	Endpoint    string // dialled, or bound when its host is * or it is ipc://
	Replay      string // bound; "" = no replay
	Topic       string // of every message
	Shape       Shape
	NoTopic     bool // replay answers without the topic frame, as engines before 2026 sent them
	BufferSteps int  // messages kept for replay; 0 = DefaultBufferSteps
	Rank        int  // data-parallel rank in every batch
}

// Defaults and limits of a Publisher.
const (
	DefaultBufferSteps = 10_000
	queuePerPeer       = 1 << 14 // messages waiting for a slow subscriber; more are dropped, and it sees the gap
)

// Publisher sends batches of events to all subscribers and answers replay requests.
type Publisher struct {
	cfg   PublisherConfig
	clock clock.Clock
	pub   net.Listener // nil when it dials
	rep   net.Listener // nil without replay
	tasks sync.WaitGroup

	mu    sync.Mutex
	seq   int64     // of the next message
	ring  []message // the last BufferSteps messages; ring[seq % len]
	peers map[*peer]struct{}
}

// peer is a subscriber's queue.
type peer struct{ queue chan [][]byte }

// NewPublisher listens where it is to listen. Nothing is sent until Run.
func NewPublisher(cfg PublisherConfig, c clock.Clock) (*Publisher, error) {
	if cfg.BufferSteps <= 0 {
		cfg.BufferSteps = DefaultBufferSteps
	}
	p := &Publisher{cfg: cfg, clock: c, ring: make([]message, cfg.BufferSteps), peers: make(map[*peer]struct{})}
	network, address, bind, err := endpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	if bind {
		if p.pub, err = listen(network, address); err != nil {
			return nil, err
		}
	}
	if cfg.Replay == "" {
		return p, nil
	}
	if network, address, _, err = endpoint(cfg.Replay); err == nil {
		p.rep, err = listen(network, address)
	}
	if err != nil && p.pub != nil {
		_ = p.pub.Close()
	}
	return p, err
}

// Endpoints are the addresses that subscribers and replay requests reach, with chosen ports; "" for one not listened on.
func (p *Publisher) Endpoints() (events, replay string) {
	return listening(p.pub, p.cfg.Endpoint), listening(p.rep, p.cfg.Replay)
}

func listening(ln net.Listener, ep string) string {
	switch {
	case ln == nil:
		return ""
	case ln.Addr().Network() == "tcp":
		return "tcp://" + ln.Addr().String()
	}
	return ep
}

// Publish numbers a batch and queues it for every subscriber. It never blocks.
func (p *Publisher) Publish(events []Event) error {
	now := p.clock.Now()
	payload, err := Encode(Batch{Time: float64(now.UnixMicro()) / 1e6, Events: events, Rank: p.cfg.Rank}, p.cfg.Shape)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := message{seq: p.seq, payload: payload}
	p.ring[p.seq%int64(len(p.ring))] = m
	p.seq++
	frames := m.frames(p.cfg.Topic)
	for peer := range p.peers {
		select {
		case peer.queue <- frames:
		default:
		}
	}
	return nil
}

// Run serves subscribers and replay requests until ctx ends, and returns once all of it has ended.
func (p *Publisher) Run(ctx context.Context) error {
	p.tasks.Go(func() {
		if p.pub != nil {
			p.accept(ctx, p.pub, p.serve)
		} else {
			p.dial(ctx)
		}
	})
	if p.rep != nil {
		p.tasks.Go(func() { p.accept(ctx, p.rep, p.answer) })
	}
	p.tasks.Wait()
	return ctx.Err()
}

func (p *Publisher) accept(ctx context.Context, ln net.Listener, serve func(context.Context, net.Conn)) {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		c, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !pause(ctx, redialAfter) {
				return
			}
			continue
		}
		p.tasks.Go(func() { serve(ctx, c) })
	}
}

func (p *Publisher) dial(ctx context.Context) {
	network, address, _, _ := endpoint(p.cfg.Endpoint) // checked by NewPublisher
	var d net.Dialer
	for {
		if c, err := d.DialContext(ctx, network, address); err == nil {
			p.serve(ctx, c)
		}
		if !pause(ctx, redialAfter) {
			return
		}
	}
}

// serve sends to one subscriber. Its subscription is waited for, so that it misses nothing after it; topics are not
// filtered beyond the first subscription, as there is one topic.
func (p *Publisher) serve(ctx context.Context, c net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	z, err := handshake(c, "PUB")
	if err != nil {
		return
	}
	defer z.Close()
	for subscribed := false; !subscribed; {
		frames, err := z.receive()
		if err != nil {
			return
		}
		subscribed = len(frames) == 1 && len(frames[0]) > 0 && frames[0][0] == 1 && hasPrefix(p.cfg.Topic, frames[0][1:])
	}
	me := &peer{queue: make(chan [][]byte, queuePerPeer)}
	p.mu.Lock()
	p.peers[me] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.peers, me)
		p.mu.Unlock()
	}()
	p.tasks.Go(func() { // notices that the subscriber has gone while there is nothing to send
		defer cancel()
		for {
			if _, err := z.receive(); err != nil {
				return
			}
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case frames := <-me.queue:
			if z.send(frames...) != nil {
				return
			}
		}
	}
}

func hasPrefix(topic string, prefix []byte) bool {
	return len(prefix) <= len(topic) && topic[:len(prefix)] == string(prefix)
}

// answer serves replay requests on one connection.
func (p *Publisher) answer(ctx context.Context, c net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	z, err := handshake(c, "ROUTER")
	if err != nil {
		return
	}
	defer z.Close()
	for {
		frames, err := z.receive()
		if err != nil {
			return
		}
		from, ok := parseReplayRequest(frames)
		if !ok {
			continue
		}
		for _, m := range append(p.since(from), message{seq: endOfReplay}) {
			answer := m.frames(p.cfg.Topic)
			if p.cfg.NoTopic {
				answer = answer[1:]
			}
			if z.send(append([][]byte{{}}, answer...)...) != nil {
				return
			}
		}
	}
}

// since copies the buffered messages from a number on.
func (p *Publisher) since(from int64) []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	from = max(from, p.seq-int64(len(p.ring)))
	var all []message
	for seq := from; seq < p.seq; seq++ {
		all = append(all, p.ring[seq%int64(len(p.ring))])
	}
	return all
}
