package rate_test

import (
	"testing"

	"millrace/billing/rate"
	"millrace/internal/usage"
)

const usd = 1_000_000_000

func TestEventsBecomeCharges(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	a, b := w.customer(epoch, 10*usd, 5*usd), w.customer(epoch, 10*usd, 5*usd)
	var events []*usage.Event
	for i := range 100 {
		events = append(events, a.event(int64(i)), b.event(int64(2*i)))
	}
	w.write(events...)
	w.rateAll()
	w.want("SELECT count(*) FROM usage_events", 200, "SELECT sum(charged_nano) FROM usage_events", int64(sumOf(events)),
		"SELECT sum(overrun_nano) FROM usage_events", 0, "SELECT sum(requests) FROM usage_rollups", 200,
		"SELECT count(*) FROM usage_events WHERE txn_id IS NULL", 0, "SELECT sum(saved_nano) FROM usage_events", 200*2,
		"SELECT sum(ttft_ms_sum) FROM usage_rollups", 200*100, "SELECT count(*) FROM quarantine", 0)
	w.sound()
}

func TestReadingAgainChangesNothing(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, 5*usd)
	e := c.event(7)
	w.write(e, e, c.event(8))
	w.write(e)
	w.rateAll()
	w.exec("UPDATE rater_offsets SET seq = 0, last_at = NULL")
	w.exec("UPDATE rater_offsets SET incarnation = 'another'") // as a database that never rated this log
	w.rateAll()
	w.want("SELECT count(*) FROM usage_events", 2, "SELECT count(*) FROM log_gaps", 0)
	w.sound()
}

var _ = rate.Config{}
