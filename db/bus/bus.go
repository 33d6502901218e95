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
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Times of a connection.
const (
	connectTimeout = 5 * time.Second
	reconnectWait  = 250 * time.Millisecond
	drainTimeout   = 5 * time.Second
)

// Config says where the bus is: a server in this process, or a URL (credentials inside it or by Token).
type Config struct {
	Server *Server
	URL    string
	Token  string
	Name   string // shown in the server's lists
}

// Bus is one connection. It is safe for concurrent use.
type Bus struct {
	conn *nats.Conn
	js   jetstream.JetStream
}

// Connect connects and keeps reconnecting until Close.
func Connect(ctx context.Context, c Config) (*Bus, error) {
	opts := []nats.Option{nats.Name(c.Name), nats.Timeout(connectTimeout), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.DrainTimeout(drainTimeout)}
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
	conn, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	return &Bus{conn: conn, js: js}, nil
}

// Conn is the connection itself.
func (b *Bus) Conn() *nats.Conn { return b.conn }

// JetStream is the durable side.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Publish sends a message to whoever listens now.
func (b *Bus) Publish(subject string, data []byte) error { return b.conn.Publish(subject, data) }

// Subscribe calls fn, one message at a time, until stop is called.
func (b *Bus) Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error) {
	sub, err := b.conn.Subscribe(subject, func(m *nats.Msg) { fn(m.Subject, m.Data) })
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Close delivers what is on its way and ends the connection.
func (b *Bus) Close() {
	if b.conn.Drain() != nil {
		b.conn.Close()
		return
	}
	for deadline := time.After(drainTimeout); !b.conn.IsClosed(); {
		select {
		case <-deadline:
			b.conn.Close()
			return
		case <-time.After(time.Millisecond):
		}
	}
}
