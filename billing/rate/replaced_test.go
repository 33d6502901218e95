package rate_test

import (
	"testing"
	"time"

	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/ids"
)

// seen is what a gateway's heartbeat notes: how far its part of the log reaches.
func (w *world) seen(epoch ids.ID, seq int64) {
	w.t.Helper()
	info, err := usagelog.Inspect(w.ctx(), w.bus.JetStream())
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec("UPDATE gateway_epochs SET log_seen = log_seen || jsonb_build_object($2::text, $3::bigint) WHERE id = $1", epoch, info.Incarnation, seq)
}

// replace makes the log anew, with an event of another customer in it.
func (w *world) replace() {
	w.t.Helper()
	other := w.customer(w.epoch(), 10*usd, 5*usd)
	if err := w.bus.JetStream().DeleteStream(w.ctx(), bus.LogStream); err != nil {
		w.t.Fatal(err)
	}
	w.write(other.event(7))
	w.seen(other.epoch, 1)
}

// A gateway died, and the log was replaced before anybody noted where the gateway's part of it ended.
func TestTheTailOfAReplacedLogIsListed(t *testing.T) {
	for _, x := range []struct {
		name  string
		rated bool  // the first message
		seen  int64 // at the last heartbeat, of three messages
		gap   string
	}{
		{"to the last heartbeat", true, 3, "from_seq = 2 AND to_seq = 3"},
		{"heartbeat before the tail", true, 1, "from_seq = 2 AND to_seq IS NULL"},
		{"never rated", false, 3, "from_seq = 1 AND to_seq = 3"},
		{"never rated, no heartbeat", false, 0, "from_seq = 1 AND to_seq IS NULL"},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t)
			epoch := w.epoch()
			c := w.customer(epoch, 10*usd, 5*usd)
			w.seen(epoch, 0)
			w.write(c.event(1))
			events := 1
			if x.rated {
				w.rateAll()
				events++
			}
			w.write(c.event(2))
			w.write(c.event(3))
			w.seen(epoch, x.seen)
			w.replace()
			w.silent(epoch, longest+time.Second)
			w.look(w.fencer()) // finds it dead; its end is noted in the new log
			w.rateAll()
			if done := w.fenced(w.fencer(), epoch); done.LogGone {
				t.Errorf("%+v", done)
			}
			w.want("SELECT count(*) FROM usage_events", events, "SELECT count(*) FROM log_gaps", 1, "SELECT count(*) FROM log_gaps WHERE "+x.gap, 1)
			w.replace() // the first log is listed already, of the second all is rated as far as anybody knows
			w.rateAll()
			w.want("SELECT count(*) FROM log_gaps", 2, "SELECT count(DISTINCT incarnation) FROM log_gaps", 2)
			w.sound()
		})
	}
}

// A log whose gateways all said goodbye and were rated leaves nothing to list; what a goodbye tells is listed once.
func TestGoodbyesTellTheTailOfAReplacedLog(t *testing.T) {
	w := newWorld(t)
	first, second, third := w.epoch(), w.epoch(), w.epoch()
	c := w.customer(first, 10*usd, 5*usd)
	w.write(c.event(1))
	w.seen(first, 1)
	w.goodbye(first)
	w.rateAll()
	f := w.fencer()
	w.fenced(f, first)
	w.write(c.event(2))
	w.goodbye(second)
	w.write(c.event(3))
	w.goodbye(third)
	w.replace()
	w.rateAll()
	w.want("SELECT count(*) FROM log_gaps", 0)
	w.eventually("both are fenced", func() bool {
		w.look(f)
		return w.number("SELECT count(*) FROM gateway_epochs WHERE fenced_at IS NOT NULL") == 3
	})
	w.want("SELECT count(*) FROM log_gaps", 2, "SELECT sum(to_seq - from_seq + 1) FROM log_gaps", 2, "SELECT max(to_seq) FROM log_gaps", 3)
	w.sound()
}
