package responses

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
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
	from    int64  // the number of the first of them

	ending chan struct{}
	ended  sync.WaitGroup

	trying int // bytes of the run that is being stored; one goroutine
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

// store writes down what waits. A run whose commit got no answer is written again as it was: if it is there, it is left.
func (j *journal) store(ctx context.Context) error {
	for {
		j.mu.Lock()
		if j.trying == 0 {
			j.trying = firstEvents(j.waiting, runBytes)
		}
		run := string(j.waiting[:j.trying])
		from := j.from
		j.mu.Unlock()
		if run == "" {
			return nil
		}
		if err := j.s.appendEvents(ctx, j.p.Caller.Org, j.p.ID, from, run); err != nil {
			return err
		}
		j.mu.Lock()
		j.waiting = j.waiting[:copy(j.waiting, j.waiting[len(run):])]
		j.from += countEvents(run)
		j.mu.Unlock()
		j.trying = 0
	}
}

func (s *Service) appendEvents(ctx context.Context, org, id ids.ID, from int64, run string) error {
	return s.write(ctx, org, unlimited, func(rows *q.Queries) (int64, error) {
		return rows.ResponseEventsAppend(ctx, q.ResponseEventsAppendParams{OrgID: org, ResponseID: id, FirstSeq: from, Events: run})
	})
}

// firstEvents is how long the first events of a list are, of about so many bytes.
func firstEvents(b []byte, most int) (end int) {
	for end < most {
		i := bytes.Index(b[end:], []byte("\n\n"))
		if i < 0 {
			break
		}
		end += i + 2
	}
	return end
}

func countEvents(run string) int64 { return int64(strings.Count(run, "\n\n")) }

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
	var next int64
	err := s.read(ctx, org, func(rows *q.Queries) error {
		last, err := rows.ResponseEventsFrom(ctx, q.ResponseEventsFromParams{OrgID: org, ResponseID: id, FromSeq: lastRun, MaxRows: 1})
		if err == nil && len(last) > 0 {
			next = last[0].FirstSeq + countEvents(last[0].Events)
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.appendEvents(ctx, org, id, next, string(dialect.Failure(next, frame, object)))
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
