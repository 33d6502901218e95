package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/internal/upstream"
)

// maxLegAnswer bounds a leg's whole answer: token ids of a prompt of a million tokens fit.
const maxLegAnswer = 64 << 20

// legGrace is how long D may go on when P broke off: it may have handed over before, as D's first token would show.
const legGrace = time.Second

// ask makes one whole request of a leg. What met a connection that had been closed is not sent again: an engine that saw it
// must not see its ids twice.
func (t *Ticket) ask(ctx context.Context, u *catalogue.Unit, attempt ids.ID, rank int, body []byte, by time.Time) (answer []byte, err error) {
	q := upstream.Request{Head: u.Head(t.req.Chat.Task.Path()), Extra: extra(u, attempt, rank), Body: body, ConnectIn: t.gate.Times.Connect, HeadBy: by}
	x, err := u.Pool().Post(ctx, q)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	if x.Status != http.StatusOK || isEventStream(x.ContentType) {
		return nil, t.refused(x)
	}
	x.Deadline(by, 0)
	answer, err = io.ReadAll(io.LimitReader(x, maxLegAnswer+1))
	if err == nil && len(answer) > maxLegAnswer {
		err = fmt.Errorf("gate: a leg's answer is above %d bytes", maxLegAnswer)
	}
	return answer, err
}

// leg is P's part of an attempt in which D is asked at the same time. It has a life of its own: once it was sent, its cache may
// be on its way, and an engine that is cut off then keeps its blocks. The gate waits for it.
type leg struct {
	done   chan struct{} // closed at its end; what follows is settled then
	handed engine.Handed
	answer []byte
	err    error

	came   chan struct{} // closed by D's first token
	once   sync.Once
	cancel context.CancelFunc

	mu    sync.Mutex
	timer *time.Timer // ends it when nobody waits any more
}

func (l *leg) arrive() { l.once.Do(func() { close(l.came) }) }

func (l *leg) arrived() bool { return closed(l.came) }
func (l *leg) ended() bool   { return closed(l.done) }

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait waits for its end, at most so long.
func (l *leg) wait(most time.Duration) bool {
	if l.ended() {
		return true
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-l.done:
		return true
	case <-t.C:
		return false
	}
}

// guarded runs a leg's work in its own goroutine. A panic is the leg's failure: it must not end the gateway.
func guarded(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("a leg panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("gate: panic: %v", p)
		}
	}()
	return work()
}

// start sends P's leg. enough ends D's when P shows that D waits in vain.
func (p *pairing) start(attempt ids.ID, body []byte, enough context.CancelFunc) *leg {
	t := p.r.t
	stage := t.gate.Times.Prefill
	if p.unit.Handoff.Holds() { // D's deadline comes first: nobody knows who keeps the other waiting
		stage += t.gate.Times.Transfer + t.gate.Times.Trail
	}
	by := p.by(stage)
	l := &leg{done: make(chan struct{}), came: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.r.ctx))
	l.cancel = cancel
	t.gate.enterLeg()
	go func() {
		defer t.gate.leaveLeg()
		defer l.stop()
		l.err = guarded(func() (err error) {
			if l.answer, err = t.ask(ctx, p.p, attempt, p.over.From.Rank, body, by); err == nil {
				l.handed, err = p.unit.Handoff.Read(l.answer)
			}
			return err
		})
		close(l.done)
		if l.err == nil && !l.handed.Complete {
			return
		}
		if mayHaveHanded(l.err) {
			grace := time.NewTimer(legGrace)
			defer grace.Stop()
			select {
			case <-l.came:
			case <-ctx.Done():
			case <-grace.C:
			}
		}
		if !l.arrived() {
			enough()
		}
	}()
	return l
}

// mayHaveHanded reports whether P broke off in a way that leaves open whether its cache went over.
func mayHaveHanded(err error) bool {
	var connect *upstream.ConnectError
	var refused *rejected
	return err != nil && !errors.As(err, &connect) && !errors.As(err, &refused) && !upstream.IsTimeout(err)
}

// leave lets the leg run on without its request, but not for long. begun is false when D cannot have begun to take the cache:
// then it ends now.
func (l *leg) leave(begun bool, trail time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended():
	case !begun:
		l.cancel()
	default:
		l.timer = time.AfterFunc(trail, l.cancel)
	}
}

func (l *leg) stop() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}
