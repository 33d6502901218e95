// Package upstream speaks HTTP/1.1 to engines: one POST at a time on a pooled connection, the answer read as it comes.
// It exists because a request's cost is mostly this leg: net/http's client hands every byte between goroutines.
//
// It owns connections, framing and deadlines of one exchange. It does not own TLS or addresses (Connect gives a ready
// connection), retries, or what the bytes mean.
//
// Invariants: one goroutine per exchange; a connection goes back to the pool only after its answer was read to the end;
// whoever closes an exchange early closes its connection, which is how an engine learns that a client has gone.
package upstream

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"millrace/internal/clock"
)

// maxIdle bounds the idle connections kept to one address.
const maxIdle = 512

// How long connections are kept idle.
const (
	PlainIdle  = 4 * time.Second  // below the 5 s after which uvicorn, the server of most engines, closes them
	SecureIdle = 30 * time.Second // a handshake costs more than finding a connection closed now and then
)

// Connect opens a connection that is ready for HTTP/1.1, TLS included.
type Connect func(ctx context.Context) (net.Conn, error)

// ErrStale says that a pooled connection was closed by the other side before it answered at all: the request can be
// sent again on a fresh one.
var ErrStale = errors.New("upstream: the pooled connection had been closed")

// ConnectError says that no connection could be opened: nothing was sent.
type ConnectError struct{ Cause error }

func (e *ConnectError) Error() string { return "upstream: connect: " + e.Cause.Error() }
func (e *ConnectError) Unwrap() error { return e.Cause }

// Pool holds the connections to one address.
type Pool struct {
	connect Connect
	clock   clock.Clock
	keep    time.Duration // how long connections are kept idle

	mu     sync.Mutex
	idle   []*conn // the longest idle first
	sweep  *time.Timer
	closed bool
}

// NewPool makes a pool that keeps connections idle for a time.
func NewPool(connect Connect, c clock.Clock, idle time.Duration) *Pool {
	return &Pool{connect: connect, clock: c, keep: idle}
}

// Close closes idle connections now and all others when their exchange ends.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	if p.sweep != nil {
		p.sweep.Stop()
	}
	p.mu.Unlock()
	closeAll(idle)
}

// get gives the connection that was used last, or a new one.
func (p *Pool) get(ctx context.Context, in time.Duration) (*conn, error) {
	now := p.clock.Now()
	p.mu.Lock()
	for n := len(p.idle); n > 0; n = len(p.idle) {
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		if now.Sub(c.since) < p.keep {
			p.mu.Unlock()
			c.reused = true
			return c, nil
		}
		_ = c.net.Close()
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, in)
	defer cancel()
	raw, err := p.connect(ctx)
	if err != nil {
		return nil, &ConnectError{err}
	}
	return &conn{net: raw, pool: p}, nil
}

func (p *Pool) put(c *conn) {
	c.since = p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle {
		_ = c.net.Close()
		return
	}
	p.idle = append(p.idle, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(2*p.keep, p.expire)
	}
}

// expire closes what has been idle for too long, and comes again while there is something idle.
func (p *Pool) expire() {
	now := p.clock.Now()
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && now.Sub(p.idle[n].since) >= p.keep {
		n++
	}
	old := append([]*conn(nil), p.idle[:n]...)
	p.idle = append(p.idle[:0], p.idle[n:]...)
	p.sweep = nil
	if len(p.idle) > 0 && !p.closed {
		p.sweep = time.AfterFunc(2*p.keep, p.expire)
	}
	p.mu.Unlock()
	closeAll(old)
}

// distrust closes what is idle: one of them was found closed, so the others probably are, and a few tries would not get
// past them all.
func (p *Pool) distrust() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	closeAll(idle)
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		_ = c.net.Close()
	}
}
