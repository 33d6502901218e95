// Package cork joins what net/http writes for one piece of an answer into one system call. Between a response writer and
// its connection lie two small buffers, so a piece of a few kilobytes leaves in three writes; on a relay, writes are what
// a request costs most.
//
// It owns nothing but the wait between Cork and Uncork. A server uses it by listening through Listen and giving Context
// as its ConnContext; a server that does not is served all the same.
package cork

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// maxHeld bounds what is held back, in bytes; more is written at once.
const maxHeld = 64 << 10

// Listen wraps the connections of a listener, but for TLS ones: the server must see what they are.
func Listen(ln net.Listener) net.Listener { return listener{ln} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if _, secure := c.(*tls.Conn); secure {
		return c, nil
	}
	return &Conn{Conn: c}, nil
}

type key struct{}

// Context is an http.Server's ConnContext.
func Context(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*Conn); ok {
		return context.WithValue(ctx, key{}, c)
	}
	return ctx
}

// From finds the connection of a request's context; nil when there is none.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(key{}).(*Conn)
	return c
}

// Conn is a connection whose writes can be held back. Cork, Uncork and Write belong to the goroutine that serves the
// request. A nil Conn does nothing.
type Conn struct {
	net.Conn
	held *[]byte // nil = not corked
	err  error   // of a write while corked
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// Cork holds writes back from now on.
func (c *Conn) Cork() {
	if c != nil && c.held == nil {
		c.held = buffers.Get().(*[]byte)
	}
}

// Uncork writes what was held back, and says what went wrong since Cork.
func (c *Conn) Uncork() error {
	if c == nil || c.held == nil {
		return nil
	}
	held := c.held
	c.held = nil
	err := c.err
	if c.err = nil; err == nil && len(*held) > 0 {
		_, err = c.Conn.Write(*held)
	}
	if cap(*held) <= 2*maxHeld {
		*held = (*held)[:0]
		buffers.Put(held)
	}
	return err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if c.held == nil {
		return c.Conn.Write(p)
	}
	if c.err != nil {
		return 0, c.err
	}
	if *c.held = append(*c.held, p...); len(*c.held) > maxHeld {
		if _, c.err = c.Conn.Write(*c.held); c.err != nil {
			return 0, c.err
		}
		*c.held = (*c.held)[:0]
	}
	return len(p), nil
}
