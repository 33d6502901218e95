// Package usagelog is the gateway's end of the usage log: a JetStream stream in which every request's usage is safe
// before the last byte of its answer leaves. It owns the stream (subject, limits, incarnation), the batching of events
// into messages, and the judgement whether new paid requests may be admitted. It does not know what an event costs or
// means: billing/rate reads the log and charges.
//
// Words. An incarnation is the life of one stream: a stream made anew has another, and its sequences mean nothing to the
// old one. A message is a batch of events, one JSON object a line.
//
// Why one subject. A stream syncs one message at a time, so a process gains nothing by publishing to several subjects at
// once: its messages queue behind each other's syncs, and an event waits for all of them. One message under way, with
// everything that came meanwhile in the next, gives the shortest wait at any load (docs/benchmarks.md). The shard in the
// subject, in rater_offsets and in an epoch's log end is therefore always Shard.
//
// Invariants. An event given to Append is kept in memory and sent again until the stream has acknowledged it; nothing is
// ever dropped, and an event may therefore lie in the log twice (the rater knows it by its id). A process has at most one
// message under way, so its events lie in the log in the order of their Append.
package usagelog

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"millrace/db/bus"
)

// Limits of the log.
const (
	Shard           = 0                  // the only one
	MaxAge          = 7 * 24 * time.Hour // how long messages are kept, rated or not
	MaxMessageBytes = 512 << 10          // of events; one event alone is at most usage.MaxEventBytes
)

// Subject is where the events are published.
var Subject = strings.TrimSuffix(bus.LogSubjects, "*") + strconv.Itoa(Shard)

// Lag is what the rater says on bus.NoticeLag, as JSON: how old the oldest unrated message is.
type Lag struct {
	MS int64 `json:"ms"`
}

// Lines yields the events of one message, still encoded, with their position in it.
func Lines(message []byte) func(yield func(position int, line []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for position := 0; len(message) > 0; position++ {
			line := message
			if end := bytes.IndexByte(message, '\n'); end >= 0 {
				line, message = message[:end], message[end+1:]
			} else {
				message = nil
			}
			if !yield(position, line) {
				return
			}
		}
	}
}
