package usagelog_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"millrace/billing/usagelog"
	"millrace/internal/clock"
)

// Append to acknowledgement, alone: what the last byte of an answer waits for.
func BenchmarkAppendAlone(b *testing.B) {
	log := openBench(b)
	e := event(orgOf(0))
	for b.Loop() {
		<-log.Append(e)
	}
}

// Append to acknowledgement under load: 64 requests end at random, each waiting for its own.
func BenchmarkAppendLoaded(b *testing.B) {
	for _, rate := range []int{1000, 5000, 20000} {
		b.Run("rate="+strconv.Itoa(rate), func(b *testing.B) { loaded(b, openBench(b), rate) })
	}
}

func loaded(b *testing.B, log *usagelog.Log, rate int) {
	waits := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range b.N {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if d := time.Until(due); d > 0 {
			time.Sleep(d)
		}
		e := event(orgOf(i % 97))
		wg.Go(func() {
			at := time.Now()
			<-log.Append(e)
			waits[i] = time.Since(at)
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "events/s")
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-us")
}

func openBench(b *testing.B) *usagelog.Log {
	server := startServer(b, b.TempDir())
	return open(b, connect(b, server), usagelog.Config{Clock: clock.System})
}
