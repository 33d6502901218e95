// Package bus is NATS: the usage log (JetStream), notices that make processes look again at once, and fleet facts fanned
// out to every gateway. It runs inside the process (millrace up) or connects to a cluster.
//
// It owns the server's life and the names of subjects; it does not own what is said on them. Nothing but the usage log is
// durable here: PostgreSQL is the truth, NATS the motion.
//
// Invariants: with SyncAlways (the default of up) an acknowledged message is on disk; the embedded server listens on
// loopback or not at all, and never without a token when it does.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Limits of a connection.
const (
	connectTimeout = 5 * time.Second
	reconnectWait  = 250 * time.Millisecond
	drainTimeout   = 5 * time.Second
	// pendingBytes is what one subscription may have waiting before its oldest messages are dropped.
	pendingBytes = 64 << 20
	pendingMsgs  = 500_000
)

// Config says where the bus is: a server in this process, or a URL (credentials inside it or by Token).
type Config struct {
	Server *Server
	URL    string
	Token  string
	Name   string       // shown in the server's lists
	Log    *slog.Logger // dropped messages and lost connections; nil drops them
}

// Bus is one connection. It is safe for concurrent use.
type Bus struct {
	conn   *nats.Conn
	server *Server // nil: another process's
	js     jetstream.JetStream
	closed chan struct{}
}

// Connect connects, bounded by ctx and five seconds, and from then on reconnects until Close. What must not suffer from
// another stream's slow reader takes a connection of its own: NATS drops messages, and in the end the client, per
// connection.
func Connect(ctx context.Context, c Config) (*Bus, error) {
	b := &Bus{server: c.Server, closed: make(chan struct{})}
	timeout := connectTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	opts := []nats.Option{nats.Name(c.Name), nats.Timeout(timeout), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.DrainTimeout(drainTimeout), nats.ClosedHandler(func(*nats.Conn) { close(b.closed) })}
	opts = append(opts, reports(c.Log)...)
	url := c.URL
	switch {
	case c.Server != nil:
		opts = append(opts, nats.InProcessServer(c.Server.ns))
		if c.Server.token != "" {
			opts = append(opts, nats.Token(c.Server.token))
		}
	case url == "":
		return nil, errors.New("bus: neither a server nor a URL is given")
	case c.Token != "":
		opts = append(opts, nats.Token(c.Token))
	}
	var err error
	if b.conn, err = nats.Connect(url, opts...); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	if b.js, err = jetstream.New(b.conn); err != nil {
		b.conn.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	return b, nil
}

// reports tells of what a program does not see otherwise.
func reports(log *slog.Logger) []nats.Option {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return []nats.Option{
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("bus", "subject", subject, "error", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("bus: connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("bus: connected again") }),
	}
}

// Conn is the connection itself.
func (b *Bus) Conn() *nats.Conn { return b.conn }

// JetStream is the durable side.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Publish sends a message to whoever listens now. While the connection is away it is kept, up to 8 MiB, and sent later.
func (b *Bus) Publish(subject string, data []byte) error { return b.conn.Publish(subject, data) }

// Subscribe calls fn, one message at a time and in order, until stop is called. A reader that falls 64 MiB behind loses
// the oldest messages; the connection's log tells of it.
func (b *Bus) Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error) {
	sub, err := b.conn.Subscribe(subject, func(m *nats.Msg) { fn(m.Subject, m.Data) })
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	if err := sub.SetPendingLimits(pendingMsgs, pendingBytes); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Close handles what has arrived, sends what is on its way and ends the connection, within five seconds.
func (b *Bus) Close() {
	if b.conn.Drain() != nil {
		b.conn.Close()
	}
	select {
	case <-b.closed:
	case <-time.After(drainTimeout + time.Second): // the drain's own bound has failed
		b.conn.Close()
	}
}
