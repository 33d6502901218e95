package rate

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"millrace/billing/usagelog"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Bounds of what an event may say about time. Requests run for hours at most; clocks of gateways are roughly right.
const (
	maxRequestTime = 48 * time.Hour
	maxClockAhead  = time.Hour
)

// oldestDay is the first day that can have a partition.
var oldestDay = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// entry is one event on its way into the books.
type entry struct {
	seq      uint64 // of its message in the log
	position int    // in its message
	line     []byte // as it was written
	ev       usage.Event
	day      time.Time
	reason   string // why it cannot be booked; "" = nothing known

	// By the price schedule.
	version  ids.ID
	repriced bool
	cost     money.Nano
	saved    money.Nano
	// By the allotments.
	charged money.Nano
	overrun money.Nano
	txn     ids.ID
}

// source says where an entry was read: it names the entry in quarantine.
type source struct {
	incarnation string
	shard       int
}

// readEntry decodes a line. What is wrong with it is in reason.
func readEntry(line []byte, seq uint64, position int, now time.Time) *entry {
	e := &entry{seq: seq, position: position, line: line}
	if len(line) > usage.MaxEventBytes {
		e.reason = fmt.Sprintf("an event of %d bytes, at most %d", len(line), usage.MaxEventBytes)
		return e
	}
	if err := usagelog.Decode(line, &e.ev); err != nil {
		e.reason = "not an event: " + err.Error()
		return e
	}
	if err := e.ev.Validate(); err != nil {
		e.reason = err.Error()
		return e
	}
	e.day = ids.Day(e.ev.ID)
	e.reason = checkTimes(&e.ev, now)
	return e
}

// dropRaw takes the engine's own usage object out of the event: JSON may say what PostgreSQL cannot store. false: there
// is none.
func (e *entry) dropRaw() bool {
	if e.ev.Raw == nil {
		return false
	}
	e.ev.Raw = nil
	line, err := json.Marshal(&e.ev)
	if err != nil {
		return false
	}
	e.line = line
	return true
}

// checkTimes refuses times that no request can have; they would land in impossible partitions and buckets.
func checkTimes(ev *usage.Event, now time.Time) string {
	id, started, ended := ids.Time(ev.ID), time.UnixMilli(ev.StartedMS), time.UnixMilli(ev.EndedMS)
	switch {
	case id.Before(oldestDay) || id.After(now.Add(maxClockAhead)):
		return "its id is of " + id.Format(time.RFC3339)
	case started.Sub(id).Abs() > maxRequestTime, ended.Sub(id).Abs() > maxRequestTime, ended.Before(started):
		return fmt.Sprintf("it started at %d ms and ended at %d ms, its id is of %d ms", ev.StartedMS, ev.EndedMS, id.UnixMilli())
	case ev.FirstTokenMS != 0 && (ev.FirstTokenMS < ev.StartedMS || ev.FirstTokenMS > ev.EndedMS):
		return "its first token is not between start and end"
	}
	return ""
}

// failed reports whether the request is counted as an error.
func failed(ev *usage.Event) bool {
	switch ev.Ending {
	case usage.EngineFailed, usage.FailedUnbilled, usage.GatewayDied:
		return true
	}
	return ev.Status >= 500
}

// distinct splits entries into those that end a request and the newest news of running ones. Of several of one request
// the first end counts: the log may hold an event twice.
func distinct(entries []*entry) (finals, progress []*entry) {
	type request struct{ org, id ids.ID }
	ended := make(map[request]bool, len(entries))
	latest := make(map[request]int)
	for _, e := range entries {
		if key := (request{e.ev.Org, e.ev.ID}); e.ev.Progress == 0 && !ended[key] {
			ended[key] = true
			finals = append(finals, e)
		}
	}
	for _, e := range entries {
		key := request{e.ev.Org, e.ev.ID}
		if e.ev.Progress == 0 || ended[key] {
			continue
		}
		if i, ok := latest[key]; !ok {
			latest[key] = len(progress)
			progress = append(progress, e)
		} else if progress[i].ev.Progress < e.ev.Progress {
			progress[i] = e
		}
	}
	return finals, progress
}

// clip cuts text to at most n bytes of valid UTF-8 that PostgreSQL can store.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
