package rate_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/billing/rate"
	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

func (w *world) fencer() *rate.Fencer {
	w.t.Helper()
	f, err := rate.NewFencer(rate.FencerConfig{DB: w.db, Bus: w.bus, Clock: clock.System, Grace: time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

// look gives what was fenced; it fails the test on an error.
func (w *world) look(f *rate.Fencer) []rate.Fenced {
	w.t.Helper()
	ended, err := f.Look(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return ended
}

// fenced looks until the epoch is fenced.
func (w *world) fenced(f *rate.Fencer, epoch ids.ID) (found rate.Fenced) {
	w.t.Helper()
	w.eventually("fenced", func() bool {
		for _, e := range w.look(f) {
			if e.Epoch == epoch {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// goodbye is what billing/credit writes when a gateway closes.
func (w *world) goodbye(epoch ids.ID) {
	w.t.Helper()
	info, err := usagelog.Inspect(w.ctx(), w.bus.JetStream())
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec("UPDATE gateway_epochs SET goodbye_at = now(), log_end = jsonb_build_object('incarnation', $2::text, 'seq', jsonb_build_object('0', $3::bigint)) WHERE id = $1",
		epoch, info.Incarnation, int64(info.Last))
}

func (w *world) silent(epoch ids.ID, for_ time.Duration) {
	w.t.Helper()
	w.exec("UPDATE gateway_epochs SET heartbeat_at = clock_timestamp() - $2::bigint * interval '1 ms' WHERE id = $1", epoch, for_.Milliseconds())
}

const longest = 300*time.Second + 3600*time.Second // of epochs in these tests

func TestAGoodbyeReturnsTheRestOnceTheLogIsRated(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	c := w.customer(epoch, 10*usd, 5*usd)
	events := []*usage.Event{c.event(100), c.event(200)}
	w.write(events...)
	w.goodbye(epoch)
	f := w.fencer()
	if ended := w.look(f); len(ended) != 0 {
		t.Fatalf("fenced before its log was rated: %+v", ended)
	}
	w.rateAll()
	done := w.fenced(f, epoch)
	if want := 2 * (5*usd - sumOf(events)); done.Returned != want || done.Closed != 0 || done.LogGone {
		t.Fatalf("%+v, want %d returned", done, want)
	}
	w.want("SELECT sum(outstanding_nano) FROM budgets", 0, "SELECT sum(settled_nano) FROM budgets", int64(2*sumOf(events)))
	if ended := w.look(f); len(ended) != 0 {
		t.Fatalf("fenced twice: %+v", ended)
	}
	w.sound()
}

func TestAGatewayThatNeverWroteIsFencedAtOnce(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	w.customer(epoch, 10*usd, 5*usd)
	w.exec(`UPDATE gateway_epochs SET goodbye_at = now(), log_end = '{"incarnation": "x", "seq": {}}' WHERE id = $1`, epoch)
	w.fenced(w.fencer(), epoch)
	w.sound()
}

func TestSilenceFencesOnlyAfterValidityAndTheLongestRequest(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	w.customer(epoch, 10*usd, 5*usd)
	f := w.fencer()
	w.silent(epoch, longest-time.Minute)
	if w.look(f); w.number("SELECT count(*) FROM gateway_epochs WHERE dead_at IS NOT NULL OR fenced_at IS NOT NULL") != 0 {
		t.Fatal("declared dead too early")
	}
	w.silent(epoch, longest+time.Second)
	w.fenced(f, epoch)
	w.sound()
}

func TestALockThatCanBeTakenProvesDeath(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	c := w.customer(epoch, 10*usd, 5*usd)
	path := filepath.Join(t.TempDir(), "epoch-"+epoch.String()+".lock")
	lock, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE gateway_epochs SET data_lock = $2 WHERE id = $1", epoch, host+":"+path)
	w.write(c.event(50))
	w.rateAll()
	f := w.fencer()
	for range 3 {
		if ended := w.look(f); len(ended) != 0 {
			t.Fatal("a living process was fenced")
		}
	}
	lock.Close() // as the kernel does for a process that dies
	w.fenced(f, epoch)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the lock file stays: %v", err)
	}
	w.sound()
}

func TestRunningStreamsOfADeadGatewayPayTheirLastProgress(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	c := w.customer(epoch, 10*usd, 5*usd)
	running, ended, huge := c.event(10), c.event(10), c.event(10)
	news := func(e *usage.Event, progress, output int64) *usage.Event {
		p := *e
		p.Progress, p.Usage[usage.Output], p.Charge, p.Ending = progress, output, 0, usage.GatewayDied
		return &p
	}
	w.write(news(running, 1, 1000), news(ended, 1, 1000), news(running, 3, 3000), news(huge, 1, 90000))
	w.write(news(running, 2, 2000), ended)
	w.write(news(ended, 2, 2000)) // overtaken: the stream has ended
	w.rateAll()
	w.want("SELECT count(*) FROM stream_progress", 2, "SELECT count(*) FROM usage_events", 1)
	w.exec("UPDATE allotments SET allotted_nano = used_nano + 60000") // less than the two cost together
	w.exec("UPDATE budgets b SET outstanding_nano = (SELECT sum(allotted_nano - used_nano) FROM allotments a WHERE a.org_id = b.org_id AND a.budget_id = b.id)")
	w.silent(epoch, longest+time.Second)
	done := w.fenced(w.fencer(), epoch)
	if done.Closed != 2 {
		t.Fatalf("%+v", done)
	}
	w.want("SELECT count(*) FROM stream_progress", 0, "SELECT count(*) FROM usage_events WHERE ending = 'gateway_died'", 2,
		"SELECT output_tokens FROM usage_events WHERE id = '"+running.ID.String()+"'", 3000,
		"SELECT overrun_nano FROM usage_events WHERE id = '"+running.ID.String()+"'", 0,
		"SELECT sum(charged_nano) FROM usage_events WHERE ending = 'gateway_died'", 60000,
		"SELECT sum(outstanding_nano) FROM budgets", 0)
	w.sound()

	// The true end of one arrives after all.
	running.Usage[usage.Output], running.Charge = 4000, 5000
	w.write(running)
	w.rateAll()
	w.want("SELECT count(*) FROM usage_events", 3, "SELECT count(*) FROM quarantine WHERE resolved_at IS NOT NULL", 1)
	w.sound()
}

// A stream whose end was put aside is a person's to decide: its progress is never billed behind his back.
func TestAnEndInQuarantineIsNotBilledByItsProgress(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	c := w.customer(epoch, 10*usd, 5*usd)
	end := c.event(500)
	news := *end
	news.Progress, news.Charge, news.Ending = 1, 0, usage.GatewayDied
	w.write(&news)
	w.rateAll()
	end.Usage[usage.Output] = 1e12 // impossible
	w.write(end)
	w.rateAll()
	w.silent(epoch, longest+time.Second)
	if done := w.fenced(w.fencer(), epoch); done.Closed != 0 {
		t.Errorf("%+v", done)
	}
	w.want("SELECT count(*) FROM usage_events", 0, "SELECT count(*) FROM quarantine WHERE resolved_at IS NULL", 1)
	w.sound()
}

// What a fence cannot close goes to quarantine as the end it is: it can be booked later, on the operator.
func TestAStreamThatCannotBeClosedIsDecidedByAPerson(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	news := w.customer(epoch, 10*usd, 5*usd).event(500)
	news.Progress, news.Charge, news.Ending = 1, 0, usage.GatewayDied
	w.write(news)
	w.rateAll()
	w.exec("UPDATE models SET context_tokens = 1, max_output_tokens = 1")
	news.Usage[usage.Output] = 5000
	w.exec("UPDATE stream_progress SET event = jsonb_set(event, '{usage,3}', '5000')")
	w.silent(epoch, longest+time.Second)
	w.fenced(w.fencer(), epoch)
	w.want("SELECT count(*) FROM usage_events", 0, "SELECT count(*) FROM stream_progress", 0)
	waiting := w.waiting()
	if len(waiting) != 1 {
		t.Fatalf("%+v", waiting)
	}
	w.exec("UPDATE models SET context_tokens = 100000, max_output_tokens = 100000")
	if err := w.desk().Redrive(t.Context(), ann, waiting[0].ID); err != nil {
		t.Fatal(err)
	}
	w.want("SELECT count(*) FROM usage_events WHERE ending = 'gateway_died' AND output_tokens = 5000", 1, "SELECT count(*) FROM stream_progress", 0,
		"SELECT sum(charged_nano) FROM usage_events", 0)
	w.sound()
}

func TestWhatArrivesAfterTheFenceIsTheOperators(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	c := w.customer(epoch, 10*usd, 5*usd)
	w.goodbye(epoch)
	w.fenced(w.fencer(), epoch)
	late := c.event(1000)
	w.write(late)
	w.rateAll()
	w.want("SELECT sum(charged_nano) FROM usage_events", 0, "SELECT sum(overrun_nano) FROM usage_events", int64(late.Charge),
		"SELECT amount_nano FROM ledger_balances WHERE account = 'overrun'", int64(late.Charge))
	w.sound()
}

// News of a running stream that come behind the fence, or are read again, leave nothing behind: nobody would close them.
func TestNewsOfAFencedEpochAreNotKept(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	c := w.customer(epoch, 10*usd, 5*usd)
	w.goodbye(epoch)
	w.fenced(w.fencer(), epoch)
	news := c.event(10)
	news.Progress, news.Charge, news.Ending = 1, 0, usage.GatewayDied
	w.write(news)
	w.rateAll()
	w.want("SELECT count(*) FROM stream_progress", 0, "SELECT count(*) FROM usage_events", 0, "SELECT count(*) FROM quarantine", 0)
	w.sound()
}

func TestALogThatIsGoneFencesByWhatWasRated(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	c := w.customer(epoch, 10*usd, 5*usd)
	first := c.event(100)
	w.write(first)
	w.rateAll()
	w.write(c.event(200))
	w.write(c.event(300))
	w.goodbye(epoch)
	if err := w.bus.JetStream().DeleteStream(w.ctx(), bus.LogStream); err != nil {
		t.Fatal(err)
	}
	f := w.fencer()
	if ended := w.look(f); len(ended) != 0 {
		t.Fatal("fenced while there is no log at all")
	}
	other := w.customer(w.epoch(), 10*usd, 5*usd)
	w.write(other.event(7)) // makes the log anew
	done := w.fenced(f, epoch)
	if !done.LogGone {
		t.Fatalf("%+v", done)
	}
	w.rateAll()
	w.want("SELECT count(*) FROM usage_events", 2, "SELECT count(*) FROM log_gaps", 1, "SELECT to_seq - from_seq + 1 FROM log_gaps", 2)
	w.sound()
}
