package limits

import (
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestAMinutesBurstThenAPace(t *testing.T) {
	c := clock.NewManual(start)
	l, key := New(c), ids.New()
	lim := Limits{RPM: 3}
	for range 3 {
		lease, err := l.Take(key, lim, 0)
		if err != nil {
			t.Fatal(err)
		}
		lease.Done(0)
	}
	_, err := l.Take(key, lim, 0)
	f := fault.Of(err)
	if f == nil || f.Kind != fault.Limited || f.RetryAfter != 20*time.Second || !strings.Contains(f.Message, "20.0 seconds") {
		t.Fatalf("the fourth request: %v", err)
	}
	c.Advance(f.RetryAfter)
	if _, err := l.Take(key, lim, 0); err != nil {
		t.Fatalf("after Retry-After: %v", err)
	}
	if _, err := l.Take(ids.New(), lim, 0); err != nil {
		t.Fatalf("another key: %v", err)
	}
}

func TestConcurrency(t *testing.T) {
	l, key := New(clock.NewManual(start)), ids.New()
	a, err := l.Take(key, Limits{Concurrency: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Take(key, Limits{Concurrency: 1}, 0); !fault.Is(err, fault.Limited) {
		t.Fatalf("a second request at once: %v", err)
	}
	a.Done(1)
	a.Done(1) // once only
	b, err := l.Take(key, Limits{Concurrency: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Take(key, Limits{Concurrency: 1}, 0); err == nil {
		t.Fatal("ending a lease twice freed two places")
	}
	b.Cancel()
}

// Tokens are reserved at the start, made right at the end, and a request above the limit can pass when nothing was used.
func TestTokens(t *testing.T) {
	c := clock.NewManual(start)
	l, key, lim := New(c), ids.New(), Limits{TPM: 6000}
	a, err := l.Take(key, lim, 5000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Take(key, lim, 2000); !fault.Is(err, fault.Limited) {
		t.Fatalf("above what is left: %v", err)
	}
	a.Done(1000)
	b, err := l.Take(key, lim, 5000)
	if err != nil {
		t.Fatalf("after the correction: %v", err)
	}
	h := http.Header{}
	b.Headers(h)
	if h.Get("X-Ratelimit-Limit-Tokens") != "6000" || h.Get("X-Ratelimit-Remaining-Tokens") != "0" || h.Get("X-Ratelimit-Reset-Tokens") != "1m0s" || len(h) != 3 {
		t.Fatalf("headers %v", h)
	}
	b.Cancel()
	d, err := l.Take(key, lim, 5000)
	if err != nil {
		t.Fatalf("after a cancel: %v", err)
	}
	d.Done(12000) // used more than reserved: the key is in debt
	if _, err := l.Take(key, lim, 1); fault.Of(err) == nil || fault.Of(err).RetryAfter < time.Minute {
		t.Fatalf("in debt: %v", err)
	}
	c.Advance(3 * time.Minute)
	if _, err := l.Take(key, lim, 1e12); err != nil {
		t.Fatalf("a request above the limit, with a full bucket: %v", err)
	}
}

// A request may be admitted before it is known how many tokens it needs.
func TestTokensThatAreReservedLater(t *testing.T) {
	c := clock.NewManual(start)
	l, key, lim := New(c), ids.New(), Limits{TPM: 6000}
	a, err := l.Take(key, lim, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Reserve(4000); err != nil {
		t.Fatal(err)
	}
	b, err := l.Take(key, lim, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reserve(4000); !fault.Is(err, fault.Limited) {
		t.Fatalf("above what is left: %v", err)
	}
	b.Cancel()
	a.Done(1000)
	if d, err := l.Take(key, lim, 5000); err != nil {
		t.Fatalf("what was reserved was not given back: %v", err)
	} else if d.Done(5000); d.Reserve(9000) != nil {
		t.Error("a lease that has ended reserves nothing")
	}
	if _, err := l.Take(key, lim, 1); !fault.Is(err, fault.Limited) {
		t.Fatalf("behind a whole minute's tokens: %v", err)
	}
	var free Lease
	if err := free.Reserve(1e9); err != nil {
		t.Error(err)
	}
}

// The largest limit and the largest request stay inside an int64.
func TestHugeNumbersDoNotWrap(t *testing.T) {
	l := New(clock.NewManual(start))
	lease, err := l.Take(ids.New(), Limits{TPM: math.MaxInt64}, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	lease.Headers(h)
	if left := h.Get("X-Ratelimit-Remaining-Tokens"); !strings.HasPrefix(left, "922337203") {
		t.Errorf("%s tokens left", left)
	}
	key, narrow := ids.New(), Limits{TPM: maxReserving}
	if _, err := l.Take(key, narrow, math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Take(key, narrow, 1); !fault.Is(err, fault.Limited) {
		t.Errorf("behind a whole minute's tokens: %v", err)
	}
}

func TestNoLimitCostsNothing(t *testing.T) {
	l, key := New(clock.NewManual(start)), ids.New()
	if n := testing.AllocsPerRun(100, func() {
		lease, err := l.Take(key, Limits{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		lease.Done(1000)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range l.shards {
		if len(l.shards[i].keys) != 0 {
			t.Fatal("a key without limits is remembered")
		}
	}
}

// Over any history, no window of a minute admits more than two bursts (GCRA's bound), cancelled requests count for
// nothing, and an idle limiter forgets.
func TestAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := clock.NewManual(start)
		l, key := New(c), ids.New()
		lim := Limits{RPM: rapid.Int64Range(1, 20).Draw(t, "rpm"), Concurrency: rapid.Int64Range(0, 5).Draw(t, "concurrency")}
		type request struct {
			lease Lease
			at    time.Time
			gone  bool
		}
		var admitted, running []*request
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				c.Advance(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "advance")))
			case 1, 2:
				lease, err := l.Take(key, lim, 0)
				if err == nil {
					r := &request{lease: lease, at: c.Now()}
					admitted, running = append(admitted, r), append(running, r)
				} else if f := fault.Of(err); f.RetryAfter <= 0 {
					t.Fatalf("no time to retry: %v", err)
				}
			case 3:
				if len(running) == 0 {
					continue
				}
				r := running[len(running)-1]
				if running = running[:len(running)-1]; r.at.Equal(c.Now()) { // refused by a later step: at once
					r.lease.Cancel()
					r.gone = true
				} else {
					r.lease.Done(0)
				}
			}
			if lim.Concurrency > 0 && int64(len(running)) > lim.Concurrency {
				t.Fatalf("%d running, %d allowed", len(running), lim.Concurrency)
			}
			recent := int64(0)
			for _, r := range admitted {
				if !r.gone && c.Now().Sub(r.at) < time.Minute {
					recent++
				}
			}
			if recent > 2*lim.RPM {
				t.Fatalf("%d requests in a minute, limit %d", recent, lim.RPM)
			}
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	c := clock.NewManual(start)
	l := New(c)
	for i := range 400_000 {
		lease, err := l.Take(ids.New(), Limits{RPM: 1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		lease.Done(0)
		if i%100 == 0 {
			c.Advance(time.Second)
		}
	}
	kept := 0
	for i := range l.shards {
		kept += len(l.shards[i].keys)
	}
	if kept > 2*sweepAt*shards {
		t.Fatalf("%d keys kept", kept)
	}
}

func TestConcurrentUse(t *testing.T) {
	l, key := New(clock.System), ids.New()
	lim := Limits{RPM: 100, TPM: 100000, Concurrency: 8}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				if lease, err := l.Take(key, lim, 10); err == nil {
					lease.Done(20)
				}
			}
		})
	}
	wg.Wait()
	sh := &l.shards[key[15]%shards]
	if sh.keys[key].running != 0 {
		t.Fatalf("%d running", sh.keys[key].running)
	}
}
