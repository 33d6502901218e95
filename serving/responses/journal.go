package responses

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	dialect "millrace/serving/protocol/responses"
)

// Limits of a journal.
const (
	journalEvery = 200 * time.Millisecond // how long an event may wait to be written down
	journalBytes = 16 << 20               // written events that may wait when the database is away
	runBytes     = 1 << 20                // of one row
)

// journal is where the answer of a run goes: its events are stored so that they can be read again. It is the gate's
// client, in one goroutine, and stores in another, which close waits for.
type journal struct {
	s    *Service
	p    *Prepared
	head http.Header

	mu      sync.Mutex
	waiting []byte // events not stored yet
	from    int64  // the first of them
	next    int64  // the number of the next event

	ending chan struct{}
	ended  sync.WaitGroup
}

func newJournal(s *Service, p *Prepared) *journal {
	j := &journal{s: s, p: p, head: http.Header{}}
	if p.Request.Stream {
		j.ending = make(chan struct{})
		j.ended.Go(j.run)
	}
	return j
}

// Header implements http.ResponseWriter.
func (j *journal) Header() http.Header { return j.head }

// WriteHeader implements http.ResponseWriter.
func (j *journal) WriteHeader(int) {}

var errJournal = errors.New("responses: the events could not be stored in time")

// Write implements http.ResponseWriter. It is given whole events.
func (j *journal) Write(b []byte) (int, error) {
	if j.ending == nil {
		return len(b), nil // an answer given whole is stored as the response object
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.waiting) > journalBytes {
		return 0, errJournal
	}
	for event := range bytes.SplitSeq(b, []byte("\n\n")) {
		if len(event) > 0 && event[0] != ':' {
			j.waiting = append(append(j.waiting, event...), "\n\n"...)
			j.next++
		}
	}
	return len(b), nil
}

func (j *journal) run() {
	tick := time.NewTicker(journalEvery)
	defer tick.Stop()
	for {
		select {
		case <-j.ending:
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
			_ = j.store(ctx) // what could not be stored waits for the next time, within journalBytes
			cancel()
		}
	}
}

// store writes down what waits.
func (j *journal) store(ctx context.Context) error {
	for {
		j.mu.Lock()
		events, n := firstEvents(j.waiting, runBytes)
		run := string(events)
		from := j.from
		j.mu.Unlock()
		if n == 0 {
			return nil
		}
		err := j.s.write(ctx, j.p.Caller.Org, func(rows *q.Queries) error {
			return rows.ResponseEventsAppend(ctx, q.ResponseEventsAppendParams{OrgID: j.p.Caller.Org, ResponseID: j.p.ID, FirstSeq: from, Events: run})
		})
		if err != nil {
			return err
		}
		j.mu.Lock()
		j.waiting = j.waiting[:copy(j.waiting, j.waiting[len(run):])]
		j.from += int64(n)
		j.mu.Unlock()
	}
}

// firstEvents is the begin of a list of events, of about so many bytes.
func firstEvents(b []byte, most int) (events []byte, n int) {
	end := 0
	for end < most {
		i := bytes.Index(b[end:], []byte("\n\n"))
		if i < 0 {
			break
		}
		end, n = end+i+2, n+1
	}
	return b[:end], n
}

// close stores the rest.
func (j *journal) close(ctx context.Context) error {
	if j.ending == nil {
		return nil
	}
	close(j.ending)
	j.ended.Wait()
	return j.store(ctx)
}

// appendFailure ends the stored events of a response that nobody will finish.
func (s *Service) appendFailure(ctx context.Context, org, id ids.ID, frame, object []byte) error {
	return s.write(ctx, org, func(rows *q.Queries) error {
		last, err := rows.ResponseEventsFrom(ctx, q.ResponseEventsFromParams{OrgID: org, ResponseID: id, FromSeq: lastRun, MaxRows: 1})
		if err != nil {
			return err
		}
		var next int64
		if len(last) > 0 {
			next = last[0].FirstSeq + int64(bytes.Count([]byte(last[0].Events), []byte("\n\n")))
		}
		return rows.ResponseEventsAppend(ctx, q.ResponseEventsAppendParams{OrgID: org, ResponseID: id, FirstSeq: next,
			Events: string(dialect.Failure(next, frame, object))})
	})
}

// sequence is the number of an event.
func sequence(event []byte) int64 {
	data := eventData(event)
	n, err := strconv.ParseInt(string(dialect.Member(data, "sequence_number")), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// eventData is what follows an event's data field.
func eventData(event []byte) []byte {
	_, data, _ := bytes.Cut(event, []byte("\ndata: "))
	return data
}
