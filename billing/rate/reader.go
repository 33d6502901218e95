package rate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	limit int           // events that may wait
	ready chan struct{} // holds a token when something came, or the end
	space chan struct{} // holds a token when something was taken
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex // guards what follows
	waiting []message
	events  int // in waiting
	err     error
}

// openReader starts behind a position, and reads up to limit events ahead.
func openReader(ctx context.Context, js jetstream.JetStream, c clock.Clock, pos position, limit int) (*reader, error) {
	call, cancel := context.WithTimeout(ctx, readerTimeout)
	defer cancel()
	consumer, err := js.CreateConsumer(call, bus.LogStream, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: pos.seq + 1,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerIdle,
	})
	if err != nil {
		return nil, fmt.Errorf("rate: read the log: %w", err)
	}
	// The consumer dies with its stream, so if the stream is ours after it was made, the consumer reads ours.
	info, err := usagelog.Inspect(call, js)
	if err == nil && info.Incarnation != pos.incarnation {
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
	r := &reader{limit: limit, ready: make(chan struct{}, 1), space: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer pulled.Stop()
		err := r.pump(run, pulled, c)
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		signal(r.ready)
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
		r.mu.Lock()
		r.waiting = append(r.waiting, next)
		r.events += len(next.entries)
		full := r.events >= r.limit
		r.mu.Unlock()
		signal(r.ready)
		for full {
			select {
			case <-r.space:
			case <-ctx.Done():
				return ctx.Err()
			}
			r.mu.Lock()
			full = r.events >= r.limit
			r.mu.Unlock()
		}
	}
}

// signal leaves a token; one is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
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

// collect waits until something is there and the pace allows it, or until a whole batch is there, and takes what there is.
// The pace makes events that come one by one share a transaction.
func (r *reader) collect(ctx context.Context, full int, pace <-chan time.Time) (*batch, error) {
	for paced := false; ; {
		b, err := r.take(full, paced)
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-r.ready:
		case <-pace:
			paced, pace = true, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take gives a batch when there is a whole one, or anything and it is time. What was read is taken before an error is
// told.
func (r *reader) take(full int, paced bool) (*batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.waiting) == 0:
		return nil, r.err
	case r.events < full && !paced && r.err == nil:
		return nil, nil
	}
	b, n := &batch{}, 0
	for ; n < len(r.waiting) && len(b.entries) < full; n++ {
		b.add(r.waiting[n])
	}
	r.waiting = slices.Delete(r.waiting, 0, n)
	r.events -= len(b.entries)
	b.more = b.more || len(r.waiting) > 0
	signal(r.space)
	return b, nil
}

func (b *batch) add(m message) {
	if b.first == 0 {
		b.first, b.oldest = m.seq, m.at
	}
	b.last, b.lastAt, b.more = m.seq, m.at, m.more
	b.entries = append(b.entries, m.entries...)
}
