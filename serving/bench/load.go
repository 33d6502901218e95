// Package bench loads an HTTP endpoint and measures it: requests per second at saturation, and latency at a steady rate.
//
// It owns the load generator and its arithmetic. It does not own what it measures: the commands under `millrace bench`
// start the processes and compare them side by side in one run. The client is a plain HTTP/1.1 one over kept connections,
// cheap enough not to be what is measured on two shared cores.
//
// Invariants: a run is bounded in time and goes to loopback addresses only; an answer that is not the expected status or
// is cut short counts as an error, never as a request.
package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Limits of a run.
const (
	MaxConnections = 1024
	MaxDuration    = 10 * time.Minute
	dialTimeout    = 5 * time.Second
	answerTimeout  = 60 * time.Second
	maxErrorsKept  = 3
)

// Load says what to send and how.
type Load struct {
	Address     string // host:port on loopback
	Request     []byte // a whole HTTP/1.1 request, sent again and again
	Connections int
	Duration    time.Duration
	Rate        float64 // requests per second over all connections at fixed times; 0 = as fast as answers come
}

// Result is what a run measured.
type Result struct {
	Requests, Errors int
	Seconds          float64
	PerSecond        float64
	// Latencies to the whole answer, and to its first body byte.
	P50, P99           time.Duration
	FirstP50, FirstP99 time.Duration
	Failures           []string // a few of the errors, for the reader

	samples []sample
}

type sample struct{ whole, first time.Duration }

// Run loads the endpoint until the duration has passed or ctx ends.
func Run(ctx context.Context, l Load) (Result, error) {
	if err := l.check(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.Duration)
	defer cancel()
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		res     Result
		samples []sample
	)
	start := time.Now()
	for i := range l.Connections {
		wg.Go(func() {
			own, failures := l.drive(ctx, start, i)
			mu.Lock()
			defer mu.Unlock()
			samples = append(samples, own...)
			res.Errors += len(failures)
			for _, f := range failures {
				if len(res.Failures) < maxErrorsKept {
					res.Failures = append(res.Failures, f.Error())
				}
			}
		})
	}
	wg.Wait()
	res.Seconds, res.samples = time.Since(start).Seconds(), samples
	res.summarise()
	return res, nil
}

// Pool is several runs as one: counts and seconds are added, quantiles are those of all answers together.
func Pool(runs []Result) (all Result) {
	for _, r := range runs {
		all.Errors += r.Errors
		all.Seconds += r.Seconds
		all.samples = append(all.samples, r.samples...)
		all.Failures = append(all.Failures, r.Failures[:min(len(r.Failures), maxErrorsKept-len(all.Failures))]...)
	}
	all.summarise()
	return all
}

func (l Load) check() error {
	host, _, err := net.SplitHostPort(l.Address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("bench: %q is not a loopback address", l.Address)
	}
	if l.Connections < 1 || l.Connections > MaxConnections || l.Duration <= 0 || l.Duration > MaxDuration {
		return fmt.Errorf("bench: want 1 to %d connections and at most %s", MaxConnections, MaxDuration)
	}
	return nil
}

// drive runs one connection. With a rate, latency counts from when a request was due, so that a stall is not hidden by
// the requests it kept from being sent.
func (l Load) drive(ctx context.Context, start time.Time, n int) (out []sample, failures []error) {
	var c *client
	defer func() { c.close() }()
	interval := time.Duration(0)
	if l.Rate > 0 {
		interval = time.Duration(float64(l.Connections) / l.Rate * float64(time.Second))
	}
	due := start.Add(interval * time.Duration(n) / time.Duration(l.Connections))
	for ctx.Err() == nil {
		if interval > 0 {
			if !sleepUntil(ctx, due) {
				return out, failures
			}
		} else {
			due = time.Now()
		}
		var err error
		if c == nil {
			if c, err = dial(context.WithoutCancel(ctx), l.Address); err != nil { // the run's end is no failure
				failures = append(failures, err)
				if !sleepUntil(ctx, time.Now().Add(10*time.Millisecond)) {
					return out, failures
				}
				continue
			}
		}
		first, err := c.exchange(l.Request)
		switch {
		case err == nil:
			out = append(out, sample{whole: time.Since(due), first: first.Sub(due)})
		default:
			failures = append(failures, err)
			c.close()
			c = nil
		}
		due = due.Add(interval)
	}
	return out, failures
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (r *Result) summarise() {
	r.Requests = len(r.samples)
	if r.Requests == 0 {
		return
	}
	r.PerSecond = float64(r.Requests) / r.Seconds
	whole, first := make([]time.Duration, r.Requests), make([]time.Duration, r.Requests)
	for i, s := range r.samples {
		whole[i], first[i] = s.whole, s.first
	}
	r.P50, r.P99 = quantiles(whole)
	r.FirstP50, r.FirstP99 = quantiles(first)
}

func quantiles(d []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(d)
	return d[len(d)/2], d[len(d)*99/100]
}

var errStatus = errors.New("unexpected status")
