package usagelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/db/bus"
)

// Times and sizes of publishing.
const (
	ackTimeout   = 3 * time.Second // without an acknowledgement the message is sent again
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second // between two tries
	callTimeout  = 5 * time.Second
	repairAfter  = 3        // tries: a store that failed to write once takes nothing more
	ackQueue     = 64       // late acknowledgements of earlier tries; more are not waited for
	chunkBytes   = 16 << 10 // what a chunk starts with: a dozen events
)

// chunk is one message to be. All who wait for one of its events wait for the same channel.
type chunk struct {
	lines  []byte
	events int
	done   chan struct{}
	at     int64 // when the first event came, in ns
}

// writer queues events and sends one message at a time.
type writer struct {
	log   *Log
	inbox string
	acks  chan *nats.Msg
	sub   *nats.Subscription
	timer *time.Timer
	sent  uint64 // number of chunks: names the reply subject

	events, bytes atomic.Int64  // not acknowledged
	oldest        atomic.Int64  // when the oldest waiting event came, in ns; 0 = none waits
	wake          chan struct{} // holds one token while the queue may be non-empty

	mu    sync.Mutex
	queue []*chunk // in order; the last one still grows
	busy  *chunk   // under way
	spare []byte   // a buffer that was sent
}

func newWriter(l *Log) (*writer, error) {
	w := &writer{log: l, inbox: nats.NewInbox(), acks: make(chan *nats.Msg, ackQueue), wake: make(chan struct{}, 1),
		timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	var err error
	if w.sub, err = l.cfg.Bus.Conn().ChanSubscribe(w.inbox+".*", w.acks); err != nil {
		return nil, fmt.Errorf("usagelog: subscribe to acknowledgements: %w", err)
	}
	return w, nil
}

func (w *writer) append(line []byte) <-chan struct{} {
	w.events.Add(1)
	w.bytes.Add(int64(len(line)))
	w.mu.Lock()
	var c *chunk
	if n := len(w.queue); n > 0 {
		c = w.queue[n-1]
	}
	if c == nil || len(c.lines)+len(line) > MaxMessageBytes {
		c = w.open()
	}
	c.lines = append(c.lines, line...)
	c.events++
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return c.done
}

// open starts a new last chunk. The lock is held.
func (w *writer) open() *chunk {
	c := &chunk{lines: w.spare, done: make(chan struct{}), at: w.log.cfg.Clock.Now().UnixNano()}
	if w.spare = nil; c.lines == nil {
		c.lines = make([]byte, 0, chunkBytes)
	}
	w.queue = append(w.queue, c)
	if w.busy == nil && len(w.queue) == 1 {
		w.oldest.Store(c.at)
	}
	return c
}

// take makes the first chunk the one under way; nil when nothing waits.
func (w *writer) take() *chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	w.busy = w.queue[0]
	if w.queue = w.queue[1:]; len(w.queue) == 0 {
		w.queue = nil
	}
	return w.busy
}

// settle tells everyone who waits that his event is safe.
func (w *writer) settle(c *chunk) {
	close(c.done)
	w.mu.Lock()
	w.busy = nil
	next := int64(0)
	if len(w.queue) > 0 {
		next = w.queue[0].at
	}
	w.oldest.Store(next)
	w.spare = c.lines[:0]
	w.mu.Unlock()
	m := w.log.meters
	m.messages.Inc()
	m.events.Add(float64(c.events))
	m.wait.Observe(w.log.cfg.Clock.Now().Sub(time.Unix(0, c.at)).Seconds())
	w.events.Add(-int64(c.events))
	w.bytes.Add(-int64(len(c.lines)))
}

// run sends until ctx ends. What is not acknowledged then stays counted in events.
func (w *writer) run(ctx context.Context) {
	defer w.sub.Unsubscribe()
	for {
		c := w.take()
		if c == nil {
			select {
			case <-w.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		if !w.deliver(ctx, c) {
			return
		}
		w.settle(c)
	}
}

// deliver sends c until it is acknowledged, however often it takes. false: ctx ended first.
func (w *writer) deliver(ctx context.Context, c *chunk) bool {
	w.sent++
	reply := w.inbox + "." + strconv.FormatUint(w.sent, 36)
	pause := firstPause
	for try := 1; ; try++ {
		seq, err := w.publish(ctx, reply, c.lines)
		if err == nil {
			w.log.ack(seq)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		w.log.meters.retries.Inc()
		if try&(try-1) == 0 { // the 1st, 2nd, 4th, 8th …: a log that is away for hours must not fill the disk
			w.log.cfg.Logger.Warn("the usage log did not take a message: it is sent again", "try", try, "events", c.events, "err", err)
		}
		if try >= repairAfter && !errors.Is(err, errLimit) {
			w.log.repair(ctx)
		}
		if errors.Is(err, nats.ErrNoResponders) {
			w.log.reopen(ctx)
		}
		w.timer.Reset(pause)
		select {
		case <-w.timer.C:
		case <-ctx.Done():
			return false
		}
		pause = min(2*pause, longestPause)
	}
}

// publish sends once and waits for the acknowledgement.
func (w *writer) publish(ctx context.Context, reply string, lines []byte) (seq uint64, err error) {
	if err := w.log.cfg.Bus.Conn().PublishRequest(Subject, reply, lines); err != nil {
		return 0, err
	}
	w.timer.Reset(ackTimeout)
	defer w.timer.Stop()
	for {
		select {
		case m := <-w.acks:
			if m.Subject == reply {
				return readAck(m)
			} // else the late answer to an earlier message
		case <-w.timer.C:
			return 0, fmt.Errorf("no acknowledgement within %v", ackTimeout)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// errLimit says that the stream is as large as it may be.
var errLimit = errors.New("the stream is full")

// readAck reads JetStream's answer. Without a stream there is nobody to answer, and the server says 503.
func readAck(m *nats.Msg) (uint64, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, nats.ErrNoResponders
	}
	var ack struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		Error  *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return 0, fmt.Errorf("an acknowledgement that cannot be read: %w", err)
	}
	if ack.Error != nil && strings.HasPrefix(ack.Error.Description, "maximum ") {
		return 0, fmt.Errorf("%w: %s", errLimit, ack.Error.Description)
	}
	if ack.Error != nil {
		return 0, fmt.Errorf("refused: %s (%d)", ack.Error.Description, ack.Error.Code)
	}
	if ack.Stream != bus.LogStream || ack.Seq == 0 {
		return 0, fmt.Errorf("acknowledged by another stream %q", ack.Stream)
	}
	return ack.Seq, nil
}
