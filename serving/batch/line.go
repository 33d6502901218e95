package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/gate"
)

// attempt is one request of a line.
type attempt struct {
	hold   *hold
	line   q.WaitingLinesRow
	n      int32
	id     ids.ID
	logged bool // the usage log has an event of it
	say    func(error) error
}

// line runs one line. ctx is the hold's, life the request's.
func (h *hold) line(ctx, life context.Context, l q.WaitingLinesRow) verdict {
	a := &attempt{hold: h, line: l}
	err := a.begin(ctx)
	if err == nil {
		var w *recorder
		if w, err = a.ask(life); err == nil {
			a.keep(ctx, Completed, w.result(a))
			return well
		}
	}
	v, err := a.judge(ctx, life, err)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errLost) {
		slog.WarnContext(ctx, "batch: what became of a line could not be written; it runs again", "batch", FormatBatch(h.batch.ID), "line", l.N, "cause", err)
		h.putOff(fault.Of(err), pauseBusy)
	}
	return v
}

// errNotWaiting says that the line has a result.
var errNotWaiting = errors.New("batch: the line has a result")

// begin stores the start, and with it the request's id, before there is a request.
func (a *attempt) begin(ctx context.Context) error {
	h := a.hold
	return h.write(ctx, func(rows *q.Queries, b *q.Batch) error {
		started, err := rows.StartLine(ctx, q.StartLineParams{OrgID: b.OrgID, BatchID: b.ID, N: a.line.N, Now: h.runner.store.now()})
		if errors.Is(err, pgx.ErrNoRows) {
			return errNotWaiting
		}
		a.n, a.id = started.Attempt, requestID(b.ID, a.line.N, started.Attempt, started.StartedAt)
		return err
	})
}

// ask makes the request, as the key that made the batch.
func (a *attempt) ask(ctx context.Context) (*recorder, error) {
	h := a.hold
	caller, err := h.runner.Keys.AuthenticateHash(ctx, h.hash)
	if err != nil {
		return nil, err
	}
	text, err := h.runner.store.span(ctx, h.batch.OrgID, h.batch.InputFileID, a.line.Start, a.line.Size)
	if err != nil {
		return nil, err
	}
	r, f := readRequest(text, h.endpoint.Path)
	if f != nil {
		return nil, f
	}
	asked, err := guarded(func() (Prepared, error) { return h.endpoint.Prepare(ctx, a.id, caller, r.body) })
	if err != nil {
		return nil, err
	}
	asked.ID, asked.Caller, asked.Batch, a.say = a.id, caller, true, asked.Say
	ticket, err := guarded(func() (*gate.Ticket, error) { return h.runner.Gate.Admit(ctx, asked.Request) })
	if err != nil {
		return nil, err
	}
	w := newRecorder(asked.Chat.Ignored)
	a.logged = true
	return w, a.serve(ctx, ticket, w)
}

// errCut says that the answer is not to be handed over: whether the usage log has its event is not known.
var errCut = fault.New(fault.Unavailable, "The request's usage could not be recorded. It is tried again.").WithCode("usage_log_unavailable")

// serve gets the answer. Only how the gate cuts an answer is caught.
func (a *attempt) serve(ctx context.Context, t *gate.Ticket, w *recorder) (err error) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			err = errCut
		} else if p != nil {
			panic(p)
		}
	}()
	return t.Serve(ctx, w)
}

// judge decides what an attempt's error means for its line, its batch and its model's room.
func (a *attempt) judge(ctx, life context.Context, err error) (verdict, error) {
	h, f := a.hold, fault.Of(err)
	var said *fault.Fault
	away := !errors.As(err, &said) && db.Away(err) // an engine's broken connection looks like the database's
	switch {
	case errors.Is(err, errNotWaiting), errors.Is(err, errLost):
		return nothing, nil
	case errors.Is(err, errCut): // the same id again: if the log has it, it is charged once
		h.putOff(errCut, pauseBusy)
		return nothing, nil
	case life.Err() != nil: // called off
		return nothing, a.putBack(ctx, a.logged)
	case f.Kind == fault.OutOfCredit:
		h.putOff(f, pauseBroke)
		return nothing, a.putBack(ctx, a.logged)
	case f.Kind == fault.Unavailable || f.Kind == fault.Limited || away:
		h.putOff(f, max(f.RetryAfter, pauseBusy))
		return strained, a.putBack(ctx, a.logged)
	case f.Kind == fault.Internal || f.Kind == fault.Upstream || f.Kind == fault.Timeout:
		slog.WarnContext(ctx, "batch: a line failed", "batch", FormatBatch(h.batch.ID), "line", a.line.N, "attempt", a.n, "cause", err)
		if a.mayRetry() {
			return strained, a.putBack(ctx, true)
		}
	}
	w := newRecorder(nil)
	w.WriteHeader(f.Kind.Status())
	if a.say != nil {
		err = a.say(err)
	}
	_, _ = w.Write(h.endpoint.Fail(err, a.id))
	a.keep(ctx, Failed, w.result(a))
	return nothing, nil
}

// again reports whether an earlier gateway had started the line: then the log may have its request, charged, and it keeps its
// id until it has a result.
func (a *attempt) again() bool { return a.line.StartedAt != nil }

// mayRetry counts a try that failed, and says whether there may be another.
func (a *attempt) mayRetry() bool {
	if !a.again() {
		return a.n+1 < maxAttempts
	}
	h := a.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed[a.line.N]++
	return h.failed[a.line.N] < maxAttempts
}

// putBack leaves the line to a later try: of another start, and of another number when the log has this one.
func (a *attempt) putBack(ctx context.Context, logged bool) error {
	if a.again() {
		return nil
	}
	p := q.PutLineBackParams{OrgID: a.hold.batch.OrgID, BatchID: a.hold.batch.ID, N: a.line.N, Attempt: a.n}
	if logged {
		p.Logged = 1
	}
	return a.hold.write(ctx, func(rows *q.Queries, _ *q.Batch) error {
		_, err := rows.PutLineBack(ctx, p)
		return err
	})
}

// keep writes the line's result and counts it, once.
func (a *attempt) keep(ctx context.Context, state string, result []byte) {
	count := q.CountLineParams{Completed: 1}
	if state == Failed {
		count = q.CountLineParams{Failed: 1}
	}
	err := a.hold.write(ctx, func(rows *q.Queries, b *q.Batch) error {
		written, err := rows.FinishLine(ctx, q.FinishLineParams{OrgID: b.OrgID, BatchID: b.ID, N: a.line.N, State: state, Result: result})
		if err != nil {
			return err
		}
		if written == 0 {
			return errNotWaiting
		}
		count.OrgID, count.ID = b.OrgID, b.ID
		return rows.CountLine(ctx, count)
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, errLost) {
		slog.ErrorContext(ctx, "batch: a result could not be kept; the line runs again under the same id", "batch", FormatBatch(a.hold.batch.ID), "line", a.line.N, "cause", err)
		a.hold.putOff(fault.Of(fmt.Errorf("batch: %w", err)), pauseBusy)
	}
}
