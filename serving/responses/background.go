package responses

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/gate"
	dialect "millrace/serving/protocol/responses"
)

// Times of background responses.
const (
	beatEvery = 2 * time.Second
	// deadAfter is how long an owner may be silent: then its responses are given up. A database that is away for so long
	// costs them too.
	deadAfter    = 45 * time.Second // by the database's clock
	rescueRows   = 100
	cancelWait   = 10 * time.Second // for runs to end once they were cancelled at the end of a drain
	settleWithin = 10 * time.Second // to write how a run ended
)

// run is one response being made here.
type run struct {
	p       *Prepared
	cancel  context.CancelCauseFunc // nil = the customer wants it no more
	events  *journal
	queued  []byte // the object it began as
	written bool   // its end was stored
	stored  bool   // its row is there; under the service's lock
}

// Start makes a response in the background, and gives its object as it stands: queued. The request's ctx may end.
func (s *Service) Start(ctx context.Context, p *Prepared) ([]byte, error) {
	ctx = context.WithoutCancel(ctx)
	ticket, err := s.o.Gate.Admit(ctx, p.Admission(s))
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancelCause(context.Background())
	r := &run{p: p, cancel: cancel, queued: p.Answers.Queued(ids.Format("resp", p.ID), s.now())}
	r.events = newJournal(s, p)
	p.Answers.Keep = func(response []byte) bool { return s.keepRun(r, response) }
	err = s.enter(r)
	if err == nil {
		err = s.write(ctx, p.Caller.Org, MaxOrgBytes, func(rows *q.Queries) (int64, error) { return s.insert(ctx, rows, p, r.queued, dialect.Queued) })
		if err != nil {
			s.leave(r)
		} else {
			s.begun(r)
		}
	}
	if err != nil {
		cancel(nil)
		_ = r.events.close(ctx) // nothing came
		discard(ticket)         // it must be used up: nothing reaches an engine any more
		return nil, err
	}
	go func() { // its owner is the service: Drain waits for it
		defer s.leave(r)
		defer cancel(nil)
		s.make(running, r, ticket)
	}()
	return r.queued, nil
}

// discard ends a ticket whose request came to nothing.
func discard(t *gate.Ticket) {
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(gate.ErrCalledOff)
	_ = t.Serve(gone, &journal{head: http.Header{}})
}

func (s *Service) enter(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return fault.New(fault.Unavailable, "This gateway is shutting down. Try again.").WithCode("shutting_down").WithRetryAfter(time.Second)
	}
	if err := s.running.take(r.p.Caller.Org, "responses in the background"); err != nil {
		return err
	}
	s.runs[r.p.ID] = r
	s.tasks.Add(1)
	return nil
}

// begun says that other processes can see the run.
func (s *Service) begun(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.stored = true
}

func (s *Service) leave(r *run) {
	s.mu.Lock()
	delete(s.runs, r.p.ID)
	s.running.give(r.p.Caller.Org)
	s.mu.Unlock()
	s.tasks.Done()
}

// make sees one run to its end.
func (s *Service) make(ctx context.Context, r *run, ticket *gate.Ticket) {
	first, err := s.finish(ctx, r.p.Caller.Org, r.p.ID, dialect.InProgress, dialect.WithStatus(r.queued, dialect.InProgress, nil))
	if err == nil && !first {
		r.cancel(nil) // it was cancelled while it was queued
	}
	err = errors.Join(err, s.answer(ctx, r, ticket))
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	if err := r.events.close(settling); err != nil && !errors.Is(context.Cause(ctx), context.Canceled) { // who wants it no more may have deleted it
		slog.Error("events of a background response could not be stored", "request_id", ids.Format(ids.Request, r.p.ID), "cause", err)
	}
	if r.written {
		return
	}
	if err == nil || errors.Is(context.Cause(ctx), gate.ErrCalledOff) {
		err = fault.New(fault.Unavailable, "The gateway that made this response has shut down. Try again.").WithCause(ctx.Err())
	}
	if _, err := s.fail(settling, r.p.Caller.Org, r.p.ID, r.queued, r.p.Request.Stream, err); err != nil {
		slog.Error("the end of a background response could not be stored", "request_id", ids.Format(ids.Request, r.p.ID), "cause", err)
	}
}

// answer makes the answer, of less of the conversation where that does not fit.
func (s *Service) answer(ctx context.Context, r *run, ticket *gate.Ticket) error {
	for {
		err := Serve(ctx, ticket, r.events)
		if !r.p.Shorten(err) {
			return err
		}
		if ticket, err = s.o.Gate.Admit(ctx, r.p.Admission(s)); err != nil {
			return err
		}
	}
}

// Serve uses a ticket up where there is no connection to cut: an answer that must not look whole is an error, and so is a
// panic, which must not take everybody else's work along.
func Serve(ctx context.Context, t *gate.Ticket, w http.ResponseWriter) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		err = fault.New(fault.Unavailable, "The answer could not be accounted for. Try again.")
		if cut, ok := p.(error); !ok || !errors.Is(cut, http.ErrAbortHandler) {
			slog.Error("a response panicked", "panic", p, "stack", string(debug.Stack()))
			err = fault.Of(fmt.Errorf("responses: panic: %v", p))
		}
	}()
	return t.Serve(ctx, w)
}

// keepRun stores how a run ended. Cancelled ones keep that as their end.
func (s *Service) keepRun(r *run, response []byte) bool {
	ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
	defer cancel()
	err := s.write(ctx, r.p.Caller.Org, unlimited, func(rows *q.Queries) (int64, error) {
		grown, changed, err := update(ctx, rows, r.p.Caller.Org, r.p.ID, dialect.Text(dialect.Member(response, "status")), bytes.TrimSpace(response))
		if err != nil || !changed {
			return 0, err
		}
		more, err := s.extend(ctx, rows, r.p, response)
		return grown + more, err
	})
	if err != nil {
		slog.Error("a background response could not be stored", "request_id", ids.Format(ids.Request, r.p.ID), "cause", err)
		return false
	}
	r.written = true
	return true
}

// fail ends a response that nobody will finish.
func (s *Service) fail(ctx context.Context, org, id ids.ID, object []byte, streamed bool, why error) (first bool, err error) {
	failed := dialect.WithStatus(object, dialect.Failed, dialect.ErrorOf(s.o.Frame(why)))
	if first, err = s.finish(ctx, org, id, dialect.Failed, failed); err != nil || !first || !streamed {
		return first, err
	}
	return true, s.appendFailure(ctx, org, id, s.o.Frame(why), failed)
}
