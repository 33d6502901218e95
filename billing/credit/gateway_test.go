package credit_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

func TestIdleMoneyIsRecalledBeforeARefusal(t *testing.T) {
	h := open(t)
	p := h.org(t, 10*usd)
	one, two := h.gateway(t), h.gateway(t)
	for range 3 {
		mustHold(t, one, p, 9*usd).Release() // now lies idle with the first
		mustHold(t, two, p, 10*usd).Release()
	}
	if s := two.Stats(); s.Recalls == 0 || s.Refusals != 0 {
		t.Errorf("%+v", s)
	}
	// Halves that lie on both sides come together.
	h.grant(t, p.Org, 2*usd)
	kept := mustHold(t, one, p, 5*usd)
	mustHold(t, two, p, 7*usd).Release()
	kept.Release()
	mustHold(t, one, p, 12*usd).Release()
	h.check(t, true)
}

func TestIdleMoneyReturnsByItself(t *testing.T) {
	h := open(t)
	p := h.org(t, 10*usd)
	a := h.gateway(t, func(c *credit.Config) { c.IdleAfter = time.Millisecond })
	kept := mustHold(t, a, p, 2*usd)
	mustHold(t, a, p, 3*usd).Settle(usd)
	outstanding := func() int64 {
		return query[int64](h, t, "select sum(outstanding_nano)::bigint from budgets where org_id = $1", p.Org)
	}
	eventually(t, "what is neither held nor charged is back", func() bool { return outstanding() == int64(3*usd) })
	kept.Release()
	eventually(t, "what was held is back", func() bool { return outstanding() == int64(usd) })
	h.check(t, true)
}

func TestWhileTheDatabaseIsAway(t *testing.T) {
	h, px, through := proxied(t)
	p := h.org(t, 100*usd)
	now := clock.NewManual(time.Now())
	a := h.gateway(t, func(c *credit.Config) {
		c.DB, c.Clock, c.Heartbeat, c.Validity = through, now, 20*time.Millisecond, time.Minute
	})
	mustHold(t, a, p, 10*usd).Release()
	px.down.Store(true)
	px.cut()
	mustHold(t, a, p, 10*usd).Settle(usd) // from the allotment
	if f := mustRefuse(t, a, p, 90*usd, fault.Unavailable); f.RetryAfter <= 0 {
		t.Errorf("no time to retry: %+v", f)
	}
	running := mustHold(t, a, p, usd)
	now.Advance(59 * time.Second) // the margin has begun
	if a.Valid() {
		t.Error("valid within the margin")
	}
	mustRefuse(t, a, p, usd, fault.Unavailable)
	if err := running.Extend(t.Context(), usd); err != nil {
		t.Errorf("a running stream was not extended: %v", err)
	}
	running.Settle(2 * usd)
	px.down.Store(false)
	eventually(t, "the epoch is valid again", a.Valid)
	mustHold(t, a, p, 90*usd).Release()
	if s := a.Stats(); s.Epochs != 1 || s.Refusals != 0 {
		t.Errorf("%+v", s)
	}
	h.check(t, true)
}

// The outcome of a commit that was not answered is unknown. Whatever was committed, no money is made or lost.
func TestACommitThatWasNotAnswered(t *testing.T) {
	h, px, through := proxied(t)
	p := h.org(t, 10*usd)
	a := h.gateway(t, func(c *credit.Config) {
		c.DB, c.Heartbeat = through, time.Hour
		c.Validity = 2 * time.Hour
		c.IdleAfter = time.Hour
	})
	mustHold(t, a, p, 0).Release() // makes the budget
	px.loseCommit.Store(true)
	mustRefuse(t, a, p, 10*usd, fault.Unavailable) // though it was raised
	px.loseCommit.Store(false)
	if n := query[int64](h, t, "select outstanding_nano from budgets where org_id = $1", p.Org); n != int64(10*usd) {
		t.Fatalf("outstanding %d: the commit did not take place, so that nothing is tested", n)
	}
	// The sweep reads the row again.
	eventually(t, "the money can be held", func() bool {
		hold, err := a.Hold(t.Context(), p, 10*usd)
		if err == nil {
			hold.Release()
		}
		return err == nil
	})
	if px.lost.Load() == 0 {
		t.Error("no commit was lost")
	}
	h.check(t, true)
	// The same on the way back: closing returns everything, and loses the answer.
	px.loseCommit.Store(true)
	if err := a.Close(t.Context(), credit.LogEnd{}); err == nil {
		t.Error("closed without an answer")
	}
	h.check(t, true)
}

func TestAnEpochThatTheDatabaseClosed(t *testing.T) {
	for name, sql := range map[string]string{
		"fenced":        "update gateway_epochs set fenced_at = now() where id = $1",
		"voided":        "update gateway_epochs set voided_at = now() where id = $1",
		"declared dead": "update gateway_epochs set dead_at = now() where id = $1",
		"unknown":       "with a as (delete from allotments where epoch_id = $1) delete from gateway_epochs where id = $1",
		"an older copy": "update gateway_epochs set heartbeat_at = heartbeat_at - interval '1 minute' where id = $1",
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			p := h.org(t, 100*usd)
			a := h.gateway(t, func(c *credit.Config) { c.Heartbeat = 20 * time.Millisecond })
			first := a.Epoch()
			running := mustHold(t, a, p, usd)
			h.superuser(t, sql, first)
			eventually(t, "a new epoch begins", func() bool { return a.Epoch() != first && a.Valid() })
			hold := mustHold(t, a, p, usd)
			if hold.Epoch() != a.Epoch() || running.Epoch() != first {
				t.Errorf("epochs %s, %s", hold.Epoch(), running.Epoch())
			}
			if err := running.Extend(t.Context(), 1); !fault.Is(err, fault.Unavailable) {
				t.Errorf("extended in a closed epoch: %v", err)
			}
			running.Settle(usd)
			hold.Settle(usd)
			if err := a.Close(t.Context(), credit.LogEnd{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Heartbeats note how far the log reaches, of every log that the process wrote to.
func TestHeartbeatsTellWhereTheLogEnds(t *testing.T) {
	h := open(t)
	var log atomic.Value
	log.Store(credit.LogEnd{Incarnation: "a", Seq: map[int]uint64{}})
	a := h.gateway(t, func(c *credit.Config) {
		c.Heartbeat = 20 * time.Millisecond
		c.Log = func() (string, map[int]uint64) { end := log.Load().(credit.LogEnd); return end.Incarnation, end.Seq }
	})
	for _, x := range []struct {
		end  credit.LogEnd
		want string
	}{
		{credit.LogEnd{Incarnation: "a"}, `{"a": 0}`},
		{credit.LogEnd{Incarnation: "a", Seq: map[int]uint64{0: 7}}, `{"a": 7}`},
		{credit.LogEnd{Incarnation: "b", Seq: map[int]uint64{0: 2}}, `{"a": 7, "b": 2}`},
	} {
		log.Store(x.end)
		eventually(t, "the row says "+x.want, func() bool {
			return query[string](h, t, "select log_seen::text from gateway_epochs where id = $1", a.Epoch()) == x.want
		})
	}
}

// Paused past its validity (SIGSTOP), a process admits nothing until the database has answered a new heartbeat.
func TestPastItsValidityNothingIsAdmitted(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	now := clock.NewManual(time.Now())
	a := h.gateway(t, func(c *credit.Config) { c.Clock, c.Heartbeat, c.Validity = now, 300*time.Millisecond, time.Minute })
	mustHold(t, a, p, 10*usd).Release()
	first := a.Epoch()
	h.exec(t, "update gateway_epochs set fenced_at = now() where id = $1", first)
	h.system(t, func(tx pgx.Tx) error { _, err := credit.ReturnRest(t.Context(), tx, first); return err })
	now.Advance(2 * time.Minute)
	mustRefuse(t, a, p, 1, fault.Unavailable)
	eventually(t, "a new epoch begins", func() bool { return a.Epoch() != first && a.Valid() })
	mustHold(t, a, p, 100*usd).Release()
	h.check(t, true)
}

// A raise never follows a fence, even when no heartbeat has noticed it yet.
func TestARaiseAfterAFence(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	a := h.gateway(t)
	first := a.Epoch()
	mustHold(t, a, p, 10*usd).Release()
	h.system(t, func(tx pgx.Tx) error {
		if _, err := credit.ReturnRest(t.Context(), tx, first); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "update gateway_epochs set fenced_at = now() where id = $1", first)
		return err
	})
	mustRefuse(t, a, p, 100*usd, fault.Unavailable)
	eventually(t, "a new epoch begins", func() bool { return a.Epoch() != first && a.Valid() })
	mustHold(t, a, p, 100*usd).Release()
	h.check(t, true)
	if rest := query[int64](h, t, "select sum(allotted_nano - used_nano - returned_nano)::bigint from allotments where epoch_id = $1", first); rest != 0 {
		t.Errorf("%d are outstanding after the fence", rest)
	}
}

// The database that answers is an older copy: it knows the epoch, but not what was allotted since.
func TestARaiseOnAnOlderCopy(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	a := h.gateway(t)
	first := a.Epoch()
	mustHold(t, a, p, 10*usd).Release()
	h.exec(t, "update allotments set allotted_nano = 1")
	h.exec(t, "update budgets set outstanding_nano = 1 where org_id = $1", p.Org)
	mustRefuse(t, a, p, 50*usd, fault.Unavailable)
	eventually(t, "a new epoch begins", func() bool { return a.Epoch() != first && a.Valid() })
	mustHold(t, a, p, 10*usd).Release()
}

func TestCloseReturnsEverythingAndSaysGoodbye(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	a := h.gateway(t)
	running := mustHold(t, a, p, 10*usd)
	mustHold(t, a, p, 5*usd).Settle(2 * usd)
	running.Settle(3 * usd)
	epoch, lock := a.Epoch(), a.LockName()
	if err := a.Close(t.Context(), credit.LogEnd{Incarnation: "one", Seq: map[int]uint64{0: 7}}); err != nil {
		t.Fatal(err)
	}
	if end := query[string](h, t, "select log_end::text from gateway_epochs where id = $1 and goodbye_at is not null", epoch); end != `{"seq": {"0": 7}, "incarnation": "one"}` {
		t.Errorf("log end %s", end)
	}
	if n := query[int64](h, t, "select outstanding_nano from budgets where org_id = $1", p.Org); n != int64(5*usd) {
		t.Errorf("outstanding %d, want what was charged and is not rated yet", n)
	}
	if _, err := os.Stat(lock); !os.IsNotExist(err) {
		t.Errorf("the lock file is there: %v", err)
	}
	mustRefuse(t, a, p, 1, fault.Unavailable)

	b := h.gateway(t)
	hold := mustHold(t, b, p, usd)
	if err := b.Close(t.Context(), credit.LogEnd{}); err == nil {
		t.Error("said goodbye with an open hold")
	}
	if n := query[int64](h, t, "select count(*) from gateway_epochs where goodbye_at is not null"); n != 1 {
		t.Errorf("%d goodbyes", n)
	}
	hold.Settle(usd)
	h.check(t, true)
}

func TestAnotherProcessProvesDeathByTheLock(t *testing.T) {
	h := open(t)
	a := h.gateway(t)
	dataLock := query[string](h, t, "select data_lock from gateway_epochs where id = $1", a.Epoch())
	if credit.ProvenDead(dataLock) {
		t.Fatal("a living process is declared dead")
	}
	path := a.LockName()
	for _, other := range []string{"", path, "elsewhere:" + path, dataLock + "x", dataLock[:len(dataLock)-len(path)] + "/etc/passwd"} {
		if credit.ProvenDead(other) {
			t.Errorf("%q proves a death", other)
		}
		if err := credit.RemoveLock(other); err != nil {
			t.Error(err)
		}
	}
	a.Crash()
	for range 2 { // looking changes nothing
		if !credit.ProvenDead(dataLock) {
			t.Error("a crash is not proven")
		}
	}
	if err := credit.RemoveLock(dataLock); err != nil {
		t.Error(err)
	}
	if credit.ProvenDead(dataLock) {
		t.Error("a missing file proves a death")
	}
	if err := credit.RemoveLock(dataLock); err != nil {
		t.Error(err)
	}
}

func TestReturnRestOfACrashedEpoch(t *testing.T) {
	h := open(t)
	p, other := h.org(t, 100*usd), h.org(t, 50*usd)
	a := h.gateway(t)
	hold := mustHold(t, a, p, 10*usd)
	mustHold(t, a, other, 5*usd).Release()
	hold.Settle(4 * usd)
	epoch := a.Epoch()
	a.Crash()
	h.rate(t, epoch, p.Org, hold.Budgets(), 4*usd)
	for round := range 2 {
		h.system(t, func(tx pgx.Tx) error {
			rest, err := credit.ReturnRest(t.Context(), tx, epoch)
			if err == nil && (rest > 0) != (round == 0) {
				t.Errorf("round %d: rest %s", round, rest)
			}
			return err
		})
	}
	if n := query[int64](h, t, "select sum(outstanding_nano)::bigint from budgets"); n != 0 {
		t.Errorf("outstanding %d", n)
	}
	h.check(t, true)
	if err := h.db.InTx(context.Background(), systemScope, func(tx pgx.Tx) error { _, err := credit.ReturnRest(t.Context(), tx, ids.New()); return err }); err == nil {
		t.Error("an unknown epoch has a rest")
	}
}

// What nobody has used for long is forgotten, and what was charged of it stays charged.
func TestAForgottenPotComesBackWhole(t *testing.T) {
	h := open(t)
	p := h.org(t, 10*usd)
	now := clock.NewManual(time.Now())
	a := h.gateway(t, func(c *credit.Config) { c.Clock, c.Validity, c.Heartbeat = now, 100*time.Hour, time.Hour })
	mustHold(t, a, p, 10*usd).Settle(4 * usd)
	now.Advance(time.Hour)
	eventually(t, "the pot is forgotten", func() bool { return a.Pots() == 0 })
	hold := mustHold(t, a, p, 6*usd)
	mustRefuse(t, a, p, 1, fault.OutOfCredit)
	hold.Settle(6 * usd)
	h.rate(t, a.Epoch(), p.Org, hold.Budgets(), 10*usd)
	h.check(t, true)
	if err := a.Close(t.Context(), credit.LogEnd{}); err != nil {
		t.Error(err)
	}
	if n := query[int64](h, t, "select outstanding_nano from budgets where org_id = $1", p.Org); n != 0 {
		t.Errorf("outstanding %d", n)
	}
}
