package responses

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/protocol"
	dialect "millrace/serving/protocol/responses"
	"millrace/tenants/keys"
)

// Times of followers.
const (
	followEvery = 250 * time.Millisecond
	followQuiet = 15 * time.Second // between two writes: then the client is told that the stream still runs
	followRest  = 10 * time.Second // how long the last events may come after the response's end
	followRows  = 16
)

// terminal are the events that end a stream.
var terminal = map[string]bool{"response.completed": true, "response.incomplete": true, "response.failed": true}

// Follow writes the events of a response in the background as they come, from the one after a number on. An error means
// that nothing was written.
func (s *Service) Follow(ctx context.Context, by keys.Principal, id string, after int64, w http.ResponseWriter) error {
	row, err := s.row(ctx, &Call{Caller: by}, responseID(id))
	switch {
	case err != nil:
		return err
	case row == nil:
		return notFound(id)
	case !row.Streamed:
		return fault.New(fault.Invalid, "Only responses that were begun with background and stream can be streamed again.").WithParam("stream")
	}
	if err := s.follower(by.Org); err != nil {
		return err
	}
	defer s.unfollow(by.Org)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	f := follower{s: s, by: by, id: row.ID, next: after + 1, w: w, wrote: s.now()}
	f.follow(ctx)
	return nil
}

func (s *Service) follower(org ids.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.following.take(org, "streams of background responses")
}

func (s *Service) unfollow(org ids.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following.give(org)
}

type follower struct {
	s     *Service
	by    keys.Principal
	id    ids.ID
	next  int64
	w     http.ResponseWriter
	wrote time.Time
}

// follow reads what was stored, again and again, until the stream has ended or the client has gone. A database that is
// away ends it: the client comes back with the number of the last event that it got.
func (f *follower) follow(ctx context.Context) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for over := false; ; {
		n, end, err := f.pass(ctx)
		if err != nil || end || n == 0 && over {
			return
		}
		if n > 0 {
			continue
		}
		row, err := f.s.row(ctx, &Call{Caller: f.by}, f.id)
		if err != nil || row == nil {
			return
		}
		if row.Status == dialect.Cancelled || ended(row.Status) && f.passed(ctx) {
			return
		}
		over = ended(row.Status) && f.s.now().Sub(f.wrote) > followRest // the last events are stored after the response
		if f.s.now().Sub(f.wrote) > followQuiet && f.write([]byte(protocol.Comment)) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// passed reports whether the stream's last event was before what the client wants.
func (f *follower) passed(ctx context.Context) (over bool) {
	_ = f.s.read(ctx, f.by.Org, func(rows *q.Queries) error {
		runs, err := rows.ResponseEventsFrom(ctx, q.ResponseEventsFromParams{OrgID: f.by.Org, ResponseID: f.id, FromSeq: lastRun, MaxRows: 1})
		if err == nil && len(runs) > 0 {
			events := bytes.TrimSuffix([]byte(runs[0].Events), []byte("\n\n"))
			event := events[bytes.LastIndex(events, []byte("\n\n"))+1:]
			over = terminal[dialect.Text(dialect.Member(eventData(event), "type"))] && sequence(event) < f.next
		}
		return err
	})
	return over
}

// lastRun is above the number of any event: the latest run holds it.
const lastRun = 1 << 62

// pass writes what is new; end says that the stream has ended.
func (f *follower) pass(ctx context.Context) (n int, end bool, err error) {
	var runs []q.ResponseEventsFromRow
	err = f.s.read(ctx, f.by.Org, func(rows *q.Queries) (err error) {
		runs, err = rows.ResponseEventsFrom(ctx, q.ResponseEventsFromParams{OrgID: f.by.Org, ResponseID: f.id, FromSeq: f.next, MaxRows: followRows})
		return err
	})
	var out []byte
	for _, run := range runs {
		for event := range bytes.SplitSeq([]byte(run.Events), []byte("\n\n")) {
			if len(event) == 0 || sequence(event) < f.next {
				continue
			}
			out = append(append(out, event...), "\n\n"...)
			f.next = sequence(event) + 1
			n++
			end = end || terminal[dialect.Text(dialect.Member(eventData(event), "type"))]
		}
	}
	if n > 0 && err == nil {
		err = f.write(out)
	}
	return n, end, err
}

const followWrite = time.Minute // for a client to take what was written

func (f *follower) write(b []byte) error {
	f.wrote = f.s.now()
	rc := http.NewResponseController(f.w)
	_ = rc.SetWriteDeadline(f.wrote.Add(followWrite)) // a writer without deadlines does without
	if _, err := f.w.Write(b); err != nil {
		return err
	}
	return rc.Flush()
}
