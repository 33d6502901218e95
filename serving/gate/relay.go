package gate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/gate/cork"
	"millrace/serving/internal/upstream"
	"millrace/serving/protocol"
)

// Progress events say what was delivered of a long stream, in case the gateway dies.
const (
	progressTokens = 1024
	progressTime   = 5 * time.Second
)

// relay is one request on its way: from the engine's stream to the client, in one goroutine.
type relay struct {
	t       *Ticket
	ctx     context.Context // the client's
	w       http.ResponseWriter
	flusher http.Flusher
	cork    *cork.Conn
	scratch *scratch

	unit      *catalogue.Unit
	exchange  *upstream.Exchange
	answer    protocol.Answer
	out       []byte // what the client may see and has not been given
	simulated bool
	silent    bool      // this attempt has said nothing yet
	firstBy   time.Time // when its first token must have come; zero = the request's own deadline
	try       int

	pair    *pairing // of engines; nil = one engine does all
	records bool     // what is said is kept, for another engine to go on with
	said    []byte

	settled      bool // the hold is settled and the event written
	cut          bool // the answer must not look whole: the connection is ended
	committed    bool // the head and something of the answer were written
	now          time.Time
	firstToken   time.Time
	writeBy      time.Time // the write deadline as set
	progress     int64     // progress events so far
	progressAt   time.Time
	progressMark int64     // tokens at the last one
	stoodAt      time.Time // when the caller's standing was last asked for
	extendAgain  int64     // a hold that could not be extended is tried again at so many tokens
	extendErr    error     // why the last extension failed

	used usage.Vector // what the request came to, set at its end
}

// Errors that end a stream.
var (
	errClientLeft = errors.New("gate: the client has gone")
	errCap        = errors.New("gate: the hold could not be extended")
	errNoAnswer   = errors.New("gate: the engine ended its stream without an answer")
)

// stream relays the engine's answer. ended means that the request was ended here; then an error is one for the caller to
// say, since nothing was written. Otherwise the error is the attempt's, and another may follow.
func (r *relay) stream() (ended bool, err error) {
	var out *thrownOut
	err = r.pump()
	switch {
	case r.ctx.Err() != nil, errors.Is(err, errClientLeft):
		return true, r.clientLeft()
	case errors.Is(err, errCap):
		return true, r.capReached()
	case errors.As(err, &out):
		return true, r.thrownOut(out.why)
	case r.answer.Complete(): // if the engine broke off after that, nobody misses anything
		return true, r.complete(usage.Complete)
	case err == nil:
		err = errNoAnswer
	}
	if !r.begun() || r.resumes(err) {
		return false, err
	}
	return true, r.broken(err)
}

// pump reads, counts and writes until the engine ends its stream.
func (r *relay) pump() error {
	for {
		if done, err := r.takeIn(); done || err != nil {
			return err
		}
		if err := r.flush(); err != nil {
			return err
		}
		if err := r.standing(); err != nil {
			return err
		}
		err := r.fill()
		if errors.Is(err, io.EOF) { // what is left unterminated may still be an event
			_, err := r.takeIn()
			return err
		}
		if err != nil {
			return err
		}
	}
}

// begun reports whether the engine had begun to answer: from then on there is no other try.
func (r *relay) begun() bool { return r.committed || r.t.meter.said }

// fill reads once from the engine, within the stage's deadline.
func (r *relay) fill() error {
	times := &r.t.gate.Times
	r.now = r.t.gate.Clock.Now()
	by, end := r.now.Add(times.Idle), r.t.start.Add(times.Whole)
	switch {
	case !r.silent:
	case !r.firstBy.IsZero():
		by = r.firstBy
	case r.t.resumed == nil:
		by = r.t.start.Add(times.FirstToken)
	}
	if by.After(end) {
		by = end
	}
	if err := r.waitQuietly(by); err != nil {
		return err
	}
	r.exchange.Deadline(by, times.Idle/8)
	err := r.scratch.events.Fill(r.exchange)
	r.now = r.t.gate.Clock.Now()
	return err
}

// waitQuietly waits for the engine, and tells a client whose stream has begun that it still runs: what stands between
// them ends connections on which nothing moves.
func (r *relay) waitQuietly(by time.Time) error {
	if !r.committed {
		return nil
	}
	quiet := r.t.gate.Times.Quiet
	for {
		again := r.now.Add(quiet)
		if !again.Before(by) {
			return nil
		}
		r.exchange.Deadline(again, quiet/8)
		if r.exchange.Wait() == nil {
			return nil
		}
		r.now = r.t.gate.Clock.Now()
		if r.out = r.answer.KeepAlive(r.out[:0]); len(r.out) > 0 && r.write(r.out) != nil {
			return errClientLeft
		}
		r.out = r.out[:0]
	}
}

// takeIn takes in the events that have come. done means the stream's end mark.
func (r *relay) takeIn() (done bool, err error) {
	t := r.t
	for data := r.scratch.events.Next(); data != nil; data = r.scratch.events.Next() {
		before := len(r.out)
		var step protocol.Step
		if r.out, step, err = r.answer.Add(r.out, data); err != nil {
			r.out = r.out[:before]
			return false, err
		}
		if step.Done {
			return true, nil
		}
		first := step.Says && r.silent
		if r.records {
			r.record(data)
		}
		generated, latest := t.meter.generated, t.meter.latest
		t.meter.add(step, data)
		if t.meter.generated > t.meter.held-extendAhead && !r.covered() {
			t.meter.generated, t.meter.latest = generated, latest
			r.out = r.out[:before]
			return false, errCap
		}
		if first {
			r.began()
		}
	}
	return false, nil
}

// began is an attempt's first token.
func (r *relay) began() {
	r.silent = false
	if r.firstToken.IsZero() || r.t.resumed == nil {
		r.firstToken = r.t.gate.Clock.Now()
	}
	r.t.booking.FirstToken()
	if r.pair != nil {
		r.pair.arrived()
	}
}

// flush writes what the client may see. Of a whole answer that is nothing until its end.
func (r *relay) flush() error {
	if len(r.out) > 0 {
		if !r.committed {
			r.commit(eventStream, -1)
		}
		if err := r.write(r.out); err != nil {
			return errClientLeft
		}
		r.out = r.out[:0]
	}
	m := &r.t.meter
	m.deliver()
	if r.committed && (m.delivered-r.progressMark >= progressTokens || r.now.Sub(r.progressAt) >= progressTime) {
		r.writeProgress()
	}
	return nil
}

// write gives bytes to the client at once, in one system call where the server is corked.
func (r *relay) write(b []byte) error {
	r.writeInTime()
	r.cork.Cork()
	_, err := r.w.Write(b)
	if err == nil && r.flusher != nil {
		r.flusher.Flush()
	}
	return errors.Join(r.cork.Uncork(), err)
}

// writeInTime sees to it that a client that reads nothing does not keep a request for ever. Moving the deadline costs
// more than it is worth for each write.
func (r *relay) writeInTime() {
	t := r.t.gate.Times.Write
	if by := r.t.gate.Clock.Now().Add(t); by.Sub(r.writeBy) > t/8 {
		r.writeBy = by
		if w, ok := r.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
			_ = w.SetWriteDeadline(by)
		} else {
			_ = http.NewResponseController(r.w).SetWriteDeadline(by) // a writer without deadlines does without
		}
	}
}

var (
	noCache   = []string{"no-cache"}
	unbuffer  = []string{"no"}
	trueValue = []string{"true"}
)

// commit writes the head of a good answer. length < 0 = unknown.
func (r *relay) commit(contentType string, length int) {
	r.committed = true
	h := r.w.Header()
	h["Content-Type"] = []string{contentType}
	if length >= 0 {
		h["Content-Length"] = []string{strconv.Itoa(length)}
	} else {
		h["Cache-Control"], h["X-Accel-Buffering"] = noCache, unbuffer
	}
	if r.simulated || r.exchange != nil && r.exchange.Simulated {
		h["Millrace-Simulated"] = trueValue
	}
	now := r.t.gate.Clock.Now()
	r.progressAt = now
	h["Openai-Processing-Ms"] = []string{strconv.FormatInt(now.Sub(r.t.start).Milliseconds(), 10)}
	r.w.WriteHeader(http.StatusOK)
}

// covered sees to it that the hold covers what was generated, extending it ahead of need. False ends the answer.
func (r *relay) covered() bool {
	t := r.t
	m := &t.meter
	if m.overrun(m.generated) {
		return true // no hold covers that; the usage is set aside at the end
	}
	short := m.generated - m.held
	if short <= 0 && (m.held >= m.total || m.generated < r.extendAgain) {
		return true
	}
	more := int64(sliceTokens)
	if short <= 0 {
		more = min(more, m.total-m.held)
	} else {
		more = max(more, short)
	}
	if r.extend(more) {
		return true
	}
	if short > 0 && more > short && r.extend(short) {
		return true
	}
	r.extendAgain = m.held + 1
	return short <= 0
}

func (r *relay) extend(tokens int64) bool {
	t := r.t
	amount, ok := t.outputCost(tokens)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(r.ctx, t.gate.Times.Extend)
	defer cancel()
	if r.extendErr = t.hold.Extend(ctx, amount); r.extendErr != nil {
		if !fault.Is(r.extendErr, fault.OutOfCredit) {
			logExtend(t, r.extendErr)
		}
		return false
	}
	t.held += amount
	t.meter.held += tokens
	return true
}
