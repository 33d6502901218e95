package rate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/clock"
)

// Reading of the log.
const (
	pullMessages  = 128             // under way to us at once
	pullExpiry    = 4 * time.Second // a server that says nothing for as long is gone
	consumerIdle  = time.Minute     // after which the server forgets a reader that died
	readerTimeout = 10 * time.Second
)

// message is one message of the log, decoded.
type message struct {
	seq     uint64
	at      time.Time // when the log stored it
	entries []*entry
	more    bool // others wait behind it
}

// reader reads the log in order from a position, ahead of the booking. It ends at the first thing that is not in order:
// whoever wants to go on opens a new one, and looks at the log again.
type reader struct {
	messages chan message
	err      error // valid once messages is closed
	stop     context.CancelFunc
	done     chan struct{}
}

// openReader starts after position seq of this incarnation.
func openReader(ctx context.Context, js jetstream.JetStream, c clock.Clock, incarnation string, seq uint64) (*reader, error) {
	call, cancel := context.WithTimeout(ctx, readerTimeout)
	defer cancel()
	consumer, err := js.CreateConsumer(call, bus.LogStream, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq + 1,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerIdle,
	})
	if err != nil {
		return nil, fmt.Errorf("rate: read the log: %w", err)
	}
	// The consumer dies with its stream, so if the stream is ours after it was made, the consumer reads ours.
	info, err := usagelog.Inspect(call, js)
	if err == nil && info.Incarnation != incarnation {
		err = errReplaced
	}
	if err != nil {
		return nil, err
	}
	pulled, err := consumer.Messages(jetstream.PullMaxMessages(pullMessages), jetstream.PullExpiry(pullExpiry))
	if err != nil {
		return nil, fmt.Errorf("rate: read the log: %w", err)
	}
	run, stop := context.WithCancel(ctx)
	r := &reader{messages: make(chan message, readAhead), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer close(r.messages)
		defer pulled.Stop()
		r.err = r.pump(run, pulled, c)
	}()
	return r, nil
}

// errReplaced means that the stream is not the one it was a moment ago.
var errReplaced = errors.New("rate: the log was replaced")

func (r *reader) pump(ctx context.Context, pulled jetstream.MessagesContext, c clock.Clock) error {
	for delivered := uint64(1); ; delivered++ {
		m, err := pulled.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("rate: read the log: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("rate: a message without its place in the log: %w", err)
		}
		if meta.Sequence.Consumer != delivered {
			return fmt.Errorf("rate: a message of the log went astray before %d", meta.Sequence.Stream)
		}
		next := message{seq: meta.Sequence.Stream, at: meta.Timestamp.UTC(), more: meta.NumPending > 0}
		now := c.Now()
		for position, line := range usagelog.Lines(m.Data()) {
			next.entries = append(next.entries, readEntry(line, next.seq, position, now))
		}
		select {
		case r.messages <- next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *reader) close() {
	r.stop()
	<-r.done
}

// batch is what is rated together: whole messages without a hole.
type batch struct {
	first, last uint64
	lastAt      time.Time
	oldest      time.Time
	entries     []*entry
	more        bool
}

// collect waits for a message, and takes what else is there until the batch is full. The pace holds back a batch that is
// not full, so that events which come one by one share a transaction.
func (r *reader) collect(ctx context.Context, full int, pace <-chan time.Time) (*batch, error) {
	b := &batch{}
	for len(b.entries) < full {
		var m message
		var ok bool
		switch {
		case b.first == 0:
			select {
			case m, ok = <-r.messages:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case pace != nil:
			select {
			case m, ok = <-r.messages:
			case <-pace:
				pace = nil
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		default:
			select {
			case m, ok = <-r.messages:
			default:
				return b, nil
			}
		}
		if !ok {
			if b.first != 0 {
				return b, nil // its messages are good; the next call tells of the end
			}
			return nil, r.err
		}
		b.add(m)
	}
	return b, nil
}

func (b *batch) add(m message) {
	if b.first == 0 {
		b.first, b.oldest = m.seq, m.at
	}
	b.last, b.lastAt, b.more = m.seq, m.at, m.more
	b.entries = append(b.entries, m.entries...)
}
