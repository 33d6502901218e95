package gate_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/serving/engine/sim"
	"millrace/serving/gate"
)

// A gateway that shuts down waits for legs that have outlived their requests, and no longer than they may run on.
func TestDrainWaitsForLegs(t *testing.T) {
	const trail = 300 * time.Millisecond
	f := newFleet(t, modeOf("bootstrap-rooms"), shape{times: gate.Times{Trail: trail}, change: func(c *sim.Config) { c.PeerWait = 3 * time.Second }})
	f.p[0].faults(t, `{"slow_first_ms":2000}`)
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, strings.NewReader(carried+"}"))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if answer, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	}()
	f.eventually("P is asked", func() bool { asked, _ := f.p[0].asked(); return len(asked) == 1 })
	leave()
	<-gone
	f.eventually("the request has ended", func() bool { return f.Gate.Running() == 0 })
	if f.Gate.Legs() == 0 {
		t.Fatal("P's leg was cut off with its request: its cache may have been on its way")
	}
	begun := time.Now()
	if err := f.Gate.Drain(t.Context()); err != nil || f.Gate.Legs() != 0 {
		t.Errorf("%v, %d legs", err, f.Gate.Legs())
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it took %v", took)
	}
	f.clean()
}
