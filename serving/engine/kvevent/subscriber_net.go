package kvevent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

func (s *Subscriber) accept(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = s.ln.Close() })()
	for {
		c, err := s.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !pause(ctx, redialAfter) {
				return
			}
			continue
		}
		s.conns.Go(func() { s.read(ctx, c) })
	}
}

func (s *Subscriber) dial(ctx context.Context) {
	network, address, _, _ := endpoint(s.cfg.Endpoint) // checked by NewSubscriber
	var d net.Dialer
	for {
		if c, err := d.DialContext(ctx, network, address); err == nil {
			s.read(ctx, c)
		}
		if !pause(ctx, redialAfter) {
			return
		}
	}
}

// pause waits; false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// read serves one connection until it breaks.
func (s *Subscriber) read(ctx context.Context, c net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	z, err := handshake(c, "SUB")
	if err != nil {
		return
	}
	defer z.Close()
	if z.send(append([]byte{1}, s.cfg.Topic...)) != nil || !s.deliver(ctx, inbound{connected: true}) {
		return
	}
	for {
		frames, err := z.receive()
		if err != nil {
			return
		}
		if m, err := parseFrames(frames); err == nil && m.seq != endOfReplay && !s.deliver(ctx, inbound{m: m}) {
			return
		}
	}
}

func (s *Subscriber) deliver(ctx context.Context, in inbound) bool {
	select {
	case <-ctx.Done():
		return false
	case s.inbox <- in:
		return true
	}
}

var errNoReplay = errors.New("kvevent: the engine has no replay")

// replay asks the engine for its messages from a number on.
func (s *Subscriber) replay(ctx context.Context, from int64) ([]message, error) {
	if s.cfg.Replay == "" {
		return nil, errNoReplay
	}
	network, address, _, err := endpoint(s.cfg.Replay)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("kvevent: replay: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	z, err := handshake(c, "DEALER")
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if err := z.send(replayRequest(from)...); err != nil {
		return nil, fmt.Errorf("kvevent: replay: %w", err)
	}
	var all []message
	for {
		frames, err := z.receive()
		if err != nil {
			return all, fmt.Errorf("kvevent: replay: %w", err)
		}
		m, err := parseFrames(frames)
		if err != nil {
			return all, err
		}
		if m.seq == endOfReplay {
			return all, nil
		}
		all = append(all, m)
	}
}
