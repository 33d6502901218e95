package rate_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/billing/rate"
	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/ids"
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
	w.exec("UPDATE rater_offsets SET incarnation = 'another'") // as a database that never rated this log
	w.rateAll()
	w.want("SELECT count(*) FROM usage_events", 2, "SELECT count(*) FROM log_gaps", 0)
	w.sound()
}

var errKilled = errors.New("killed")

// steps collects the names of the steps that a batch goes through.
func steps(t *testing.T, lanes int) (names []string) {
	w := newWorld(t)
	w.raw(encode(mixedEvents(w.customer(w.epoch(), 10*usd, 5*usd), w.customer(w.epoch(), 10*usd, 5*usd)))) // one message: one batch
	r := w.rater(rate.Config{Lanes: lanes})
	var mu sync.Mutex
	rate.OnStep(r, func(step string) error {
		mu.Lock()
		defer mu.Unlock()
		names = append(names, step)
		return nil
	})
	stop := w.start(r)
	w.settled()
	stop()
	return names
}

// mixedEvents are charges, an overrun, progress and its end.
func mixedEvents(a, b *customer) []*usage.Event {
	over := a.event(100)
	over.Charge -= 50
	running, ended := b.event(10), b.event(20)
	p1, p2 := *running, *ended
	p1.Progress, p2.Progress = 1, 1
	return []*usage.Event{a.event(5), over, &p1, &p2, ended, b.event(30)}
}

// A rater that dies at any statement leaves nothing half-done, and its successor repeats nothing.
func TestARaterKilledAtAnyStepRepeatsNothing(t *testing.T) {
	names := steps(t, 1)
	if len(names) < 12 {
		t.Fatalf("only %v", names)
	}
	for i, name := range names {
		t.Run(fmt.Sprintf("%d %s", i, strings.ReplaceAll(name, " ", "-")), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			events := mixedEvents(w.customer(w.epoch(), 10*usd, 5*usd), w.customer(w.epoch(), 10*usd, 5*usd))
			w.raw(encode(events))
			r := w.rater(rate.Config{})
			died := make(chan struct{})
			calls := 0
			rate.OnStep(r, func(string) error {
				if calls++; calls == i+1 {
					close(died)
				}
				if calls > i {
					return errKilled
				}
				return nil
			})
			stop := w.start(r)
			w.await(died)
			stop()
			w.want("SELECT count(*) FROM usage_events", 0, "SELECT coalesce(sum(seq), 0) FROM rater_offsets", 0)
			w.sound()
			w.rateAll()
			w.want("SELECT count(*) FROM usage_events", 4, "SELECT count(*) FROM stream_progress", 1, "SELECT sum(overrun_nano) FROM usage_events", 50)
			w.sound()
		})
	}
}

// A large batch is booked in several transactions; dying between them must not matter either.
func TestARaterKilledBetweenLanesRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	var events []*usage.Event
	for range 10 {
		c := w.customer(epoch, 10*usd, 5*usd)
		for i := range 450 {
			events = append(events, c.event(int64(i)))
		}
	}
	w.write(events...)
	r := w.rater(rate.Config{Lanes: 2, Pace: 300 * time.Millisecond, Batch: len(events)})
	var mu sync.Mutex
	booked, died := 0, make(chan struct{})
	rate.OnStep(r, func(step string) error {
		mu.Lock()
		defer mu.Unlock()
		if step == "booked" {
			booked++
		}
		if step == "advance" && booked >= 2 {
			select {
			case <-died:
			default:
				close(died)
			}
			return errKilled
		}
		return nil
	})
	stop := w.start(r)
	w.await(died)
	stop()
	if w.number("SELECT count(*) FROM usage_events") == 0 {
		t.Fatal("nothing was booked before the position moved: the test misses its point")
	}
	if rated, end := w.position(); rated >= end {
		t.Fatal("the position moved with a batch whose rater died")
	}
	w.sound()
	w.rateAll()
	w.want("SELECT count(*) FROM usage_events", len(events), "SELECT sum(charged_nano) FROM usage_events", int64(sumOf(events)))
	w.sound()
}

func TestTwoRatersBookOnce(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	customers := []*customer{w.customer(epoch, 1000*usd, 500*usd), w.customer(epoch, 1000*usd, 500*usd), w.customer(epoch, 1000*usd, 500*usd)}
	var all []*usage.Event
	stops := []func(){}
	for range 3 {
		stops = append(stops, w.start(w.rater(rate.Config{Batch: 50})))
	}
	for i := range 40 {
		var events []*usage.Event
		for j := range 60 {
			events = append(events, customers[(i+j)%3].event(int64(i*j)))
		}
		w.write(events...)
		all = append(all, events...)
		if i == 20 {
			stops[0]() // whoever works, another one goes on
		}
		if i == 30 {
			stops[1]()
		}
	}
	w.settled()
	stops[2]()
	w.want("SELECT count(*) FROM usage_events", len(all), "SELECT sum(charged_nano) FROM usage_events", int64(sumOf(all)), "SELECT count(*) FROM log_gaps", 0)
	w.sound()
}

func TestPoisonIsPutAsideAndTheBatchGoesOn(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 1000*usd, 500*usd)
	var good []*usage.Event
	for i := range 60 {
		good = append(good, c.event(int64(i)))
	}
	spoil := func(change func(e *usage.Event)) *usage.Event {
		e := c.event(3)
		change(e)
		return e
	}
	bad := []*usage.Event{
		spoil(func(e *usage.Event) { e.Usage[usage.Output] = 1e12 }),    // impossible
		spoil(func(e *usage.Event) { e.Usage[usage.Output] = 200_000 }), // above the model's context
		spoil(func(e *usage.Event) { e.Org = ids.New() }),               // nobody
		spoil(func(e *usage.Event) { e.Model = ids.New() }),             // nothing
		spoil(func(e *usage.Event) { e.StartedMS = 5 }),                 // in 1970
		spoil(func(e *usage.Event) { e.ID[0] = 0xff }),                  // in the year 10000
		spoil(func(e *usage.Event) { e.Dialect = "a\x00b" }),            // PostgreSQL's text refuses it
	}
	good[3].Raw = []byte(`{"text":"\u0000"}`) // JSON, but not PostgreSQL's: the event counts without it
	good[40].Raw = []byte(`{"n":1e99999999}`) // no number of PostgreSQL's
	w.write(good[:30]...)
	w.write(append(append([]*usage.Event{}, bad...), good[30:]...)...)
	w.raw("{\"broken\n" + "\n" + "[1,2]\n")
	w.raw(strings.Repeat("x", 100_000))
	last := c.event(1)
	w.write(last)
	w.rateAll()
	w.want("SELECT count(*) FROM usage_events", len(good)+1, "SELECT sum(charged_nano) FROM usage_events", int64(sumOf(good)+last.Charge),
		"SELECT count(*) FROM quarantine WHERE resolved_at IS NULL", len(bad)+4, "SELECT count(*) FROM quarantine WHERE reason = ''", 0,
		"SELECT max(length(payload)) FROM quarantine", 64<<10,
		"SELECT count(*) FROM usage_events WHERE raw IS NULL", 2)
	w.sound()
	w.exec("UPDATE rater_offsets SET incarnation = 'another'")
	w.rateAll()
	w.want("SELECT count(*) FROM quarantine", len(bad)+4)
	w.sound()
}

func TestALostBeginningOfTheLogIsListed(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, 5*usd)
	w.write(c.event(1))
	w.rateAll()
	w.write(c.event(2))
	w.write(c.event(3))
	w.write(c.event(4))
	stream, err := w.bus.JetStream().Stream(w.ctx(), bus.LogStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxAge, cfg.Duplicates = 100*time.Millisecond, 100*time.Millisecond // as a week does to a log that nobody rates
	if _, err := w.bus.JetStream().UpdateStream(w.ctx(), cfg); err != nil {
		t.Fatal(err)
	}
	w.eventually("expired", func() bool {
		info, err := usagelog.Inspect(w.ctx(), w.bus.JetStream())
		return err == nil && info.First == 5
	})
	cfg.MaxAge = usagelog.MaxAge
	if _, err := w.bus.JetStream().UpdateStream(w.ctx(), cfg); err != nil {
		t.Fatal(err)
	}
	w.rateAll()
	w.write(c.event(5))
	w.rateAll()
	w.want("SELECT count(*) FROM log_gaps", 1, "SELECT from_seq FROM log_gaps", 2, "SELECT to_seq FROM log_gaps", 4, "SELECT count(*) FROM usage_events", 2)
	w.sound()
}

// A server that did not sync lost messages that were rated; new ones took their numbers.
func TestALogThatWasRolledBackLosesNoNewEvents(t *testing.T) {
	for _, more := range []int{1, 5} { // the log ends before the position, and behind it
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			w := newWorld(t)
			c := w.customer(w.epoch(), 10*usd, 5*usd)
			for i := range 3 {
				w.write(c.event(int64(i)))
			}
			w.rateAll()
			info, err := usagelog.Inspect(w.ctx(), w.bus.JetStream())
			if err != nil {
				t.Fatal(err)
			}
			stream, err := w.bus.JetStream().Stream(w.ctx(), bus.LogStream)
			if err != nil {
				t.Fatal(err)
			}
			cfg := stream.CachedInfo().Config // the same incarnation again, shorter
			if err := w.bus.JetStream().DeleteStream(w.ctx(), bus.LogStream); err != nil {
				t.Fatal(err)
			}
			if _, err := w.bus.JetStream().CreateStream(w.ctx(), cfg); err != nil {
				t.Fatal(err)
			}
			for i := range more {
				w.write(c.event(int64(i)))
			}
			if again, err := usagelog.Inspect(w.ctx(), w.bus.JetStream()); err != nil || again.Incarnation != info.Incarnation {
				t.Fatal(again, err)
			}
			stop := w.start(w.rater(rate.Config{}))
			w.eventually("every new event is rated", func() bool { return w.number("SELECT count(*) FROM usage_events") == int64(3+more) })
			stop()
			w.sound()
		})
	}
}

// The log is deleted under a running rater and made anew.
func TestARunningRaterFollowsANewLog(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, 5*usd)
	w.start(w.rater(rate.Config{}))
	for round := range 3 {
		for i := range 5 {
			w.write(c.event(int64(i)))
		}
		w.eventually("rated", func() bool { return w.number("SELECT count(*) FROM usage_events") == int64(5*(round+1)) })
		if err := w.bus.JetStream().DeleteStream(w.ctx(), bus.LogStream); err != nil {
			t.Fatal(err)
		}
	}
	w.sound()
}

func TestPagesAndGatewaysAreTold(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, 5*usd)
	heard := make(chan string, 100)
	for _, subject := range []string{bus.LivePrefix + ">", bus.NoticeLag} {
		stop, err := w.bus.Subscribe(subject, func(subject string, data []byte) {
			select {
			case heard <- subject + string(data):
			default:
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	w.start(w.rater(rate.Config{}))
	w.write(c.event(1))
	missing := map[string]bool{bus.LivePrefix + strings.ReplaceAll(c.org.String(), "-", ""): true, bus.NoticeLag + `{"ms":0}`: true}
	for deadline := time.After(patience); len(missing) > 0; {
		select {
		case said := <-heard:
			delete(missing, said)
		case <-deadline:
			t.Fatalf("never heard %v", missing)
		}
	}
}
