package usagelog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/db/bus"
	"millrace/internal/usage"
)

// Log is the open usage log of one gateway process. It is safe for concurrent use.
type Log struct {
	cfg     Config
	js      jetstream.JetStream
	writer  *writer
	meters  *meters
	stopLag func()

	closed  atomic.Bool
	diskLow atomic.Bool
	lag     atomic.Pointer[heardLag]

	mu          sync.Mutex // guards what follows
	incarnation string
	acked       uint64

	stop context.CancelFunc
	wg   sync.WaitGroup
}

type heardLag struct {
	lag time.Duration
	at  time.Time
}

// Open makes the stream if there is none and starts the log. ctx bounds the opening only; Close ends the log.
func Open(ctx context.Context, c Config) (*Log, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Log{cfg: c, js: c.Bus.JetStream()}
	info, err := ensure(ctx, l.js, &l.cfg)
	if err != nil {
		return nil, err
	}
	l.incarnation = info.Incarnation
	if l.writer, err = newWriter(l); err != nil {
		return nil, err
	}
	if l.meters, err = newMeters(l, c.Metrics); err != nil {
		return nil, errors.Join(err, l.writer.sub.Unsubscribe())
	}
	if l.stopLag, err = c.Bus.Subscribe(bus.NoticeLag, l.hearLag); err != nil {
		return nil, errors.Join(err, l.writer.sub.Unsubscribe())
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.wg.Go(func() { l.writer.run(run) })
	if c.DiskFree != nil {
		l.checkDisk()
		l.wg.Go(func() { l.watchDisk(run) })
	}
	return l, nil
}

// Append takes the event over: it must not be changed afterwards. The channel is closed once the event is safe in the log.
func (l *Log) Append(e *usage.Event) <-chan struct{} {
	if l.closed.Load() {
		l.cfg.Logger.Error("a usage event after the log was closed is lost", "event", e.ID, "org", e.Org, "charge_nano", int64(e.Charge))
	}
	line := lines.Get().(*[]byte)
	*line = l.encode((*line)[:0], e)
	done := l.writer.append(*line)
	lines.Put(line)
	return done
}

// lines keeps buffers for events on their way into a chunk.
var lines = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// encode never fails: a raw usage object that is no JSON, or too long, is left out, because the vector is what counts.
func (l *Log) encode(dst []byte, e *usage.Event) []byte {
	line, err := e.AppendJSON(dst)
	if err == nil && len(line) < usage.MaxEventBytes {
		return append(line, '\n')
	}
	l.cfg.Logger.Warn("a usage event goes without its raw usage", "event", e.ID, "bytes", len(line), "err", err)
	bare := *e
	bare.Raw = nil
	line, _ = bare.AppendJSON(dst) // only a raw usage can fail
	return append(line, '\n')
}

// LastAcked is where this process's events end: the log's incarnation and the last acknowledged sequence, by shard (none
// when it never wrote). After Flush it is what a gateway says in its goodbye.
func (l *Log) LastAcked() (incarnation string, seq map[int]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked == 0 {
		return l.incarnation, map[int]uint64{}
	}
	return l.incarnation, map[int]uint64{Shard: l.acked}
}

// ack notes where this process's events end.
func (l *Log) ack(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = max(l.acked, seq)
}

// reopen makes the stream anew after it is gone.
func (l *Log) reopen(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := ensure(call, l.js, &l.cfg)
	if err != nil {
		l.cfg.Logger.Error("the usage log is away", "err", err)
		return
	}
	l.adopt(info.Incarnation, 0)
}

// repair opens the store of a server in this process anew, once its disk has room: on a full one it might not come back.
func (l *Log) repair(ctx context.Context) {
	if l.cfg.DiskFree == nil {
		return
	}
	if l.checkDisk(); l.diskLow.Load() {
		return
	}
	if err := l.cfg.Bus.Repair(ctx); err != nil {
		l.cfg.Logger.Error("the usage log's store cannot be opened anew", "err", err)
	}
}

// adopt forgets what was acknowledged by another incarnation than this one.
func (l *Log) adopt(incarnation string, acked uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if incarnation == l.incarnation {
		return
	}
	l.cfg.Logger.Error("the usage log is a new one: what the old one held and was not rated is lost", "old", l.incarnation, "new", incarnation)
	l.incarnation, l.acked = incarnation, acked
}
