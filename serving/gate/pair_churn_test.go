package gate_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/serving/engine/sim"
	"millrace/serving/gate"
)

// crowd sends n requests, so many at once, and calls each before every one.
func (f *fleet) crowd(n, atOnce int, send func(i int), before func(i int)) {
	places := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i := range n {
		before(i)
		places <- struct{}{}
		running.Go(func() { defer func() { <-places }(); send(i) })
	}
	running.Wait()
}

// Engines come and go while requests run (dynamo#13088: requests that hang with no log): all are answered, none waits for
// ever, those that had begun go on elsewhere.
func TestEnginesComeAndGo(t *testing.T) {
	for _, m := range handoffs {
		if m.personality == "trtllm" { // its answers cannot be continued
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			s := shape{p: 2, d: 2, times: gate.Times{Prefill: 2 * time.Second, Transfer: 2 * time.Second, Trail: time.Second},
				change: func(c *sim.Config) { c.Lease, c.PeerWait, c.Speed = 3*time.Second, 5*time.Second, 20 }}
			f := newFleet(t, m, s)
			one := f.beside()
			want := f.expected(t, one)
			f.Model.Units = f.Model.Units[:1]
			var short, slow atomic.Int64
			f.crowd(160, 8, func(i int) {
				begun := time.Now()
				if text, whole := f.send(t, soakBody(i%soakPrompts, i%2 == 0), 0); !whole || text != want[i%soakPrompts] {
					short.Add(1)
				}
				if time.Since(begun) > 8*time.Second {
					slow.Add(1)
				}
			}, func(i int) {
				switch i {
				case 40:
					f.p[0].kill()
				case 100:
					f.d[0].kill()
				}
			})
			if n := short.Load(); n > 0 {
				t.Errorf("%d of 160 requests were not answered whole: %+v", n, f.Gate.Stats())
			}
			if n := slow.Load(); n > 0 {
				t.Errorf("%d requests took more than 8 s", n)
			}
			f.p, f.d = f.p[1:], f.d[1:]
			f.clean()
		})
	}
}

// A third of the clients leave (sglang PR#28651: a storm of cancels stops serving for an hour): the others are served, and
// afterwards all is as before.
func TestAStormOfCancels(t *testing.T) {
	for _, m := range handoffs {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, m, shape{p: 1, d: 1, times: gate.Times{Trail: time.Second}, change: func(c *sim.Config) { c.Lease, c.PeerWait = 3*time.Second, 5*time.Second }})
			var whole, stayed atomic.Int64
			f.crowd(200, 16, func(i int) {
				random := rand.New(rand.NewPCG(uint64(i), 2))
				leaves := time.Duration(0)
				if random.IntN(10) < 3 {
					leaves = time.Duration(1+random.IntN(5000)) * time.Microsecond
				} else {
					stayed.Add(1)
				}
				if _, complete := f.send(t, soakBody(i%soakPrompts, i%2 == 0), leaves); complete && leaves == 0 {
					whole.Add(1)
				}
			}, func(int) {})
			if whole.Load() != stayed.Load() {
				t.Errorf("%d of %d that stayed were served: %+v", whole.Load(), stayed.Load(), f.Gate.Stats())
			}
			f.clean()
			if answer, body, err := post(t, f.Stand, carried+"}"); err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("afterwards: %v %s", err, body)
			}
			if f.p[0].Handovers().Deaths+f.d[0].Handovers().Deaths != 0 {
				t.Error("an engine died")
			}
		})
	}
}

// More prompts than engines hand over at a time wait for a place here, not there (sglang#10204).
func TestHandOversWaitForAPlace(t *testing.T) {
	f := newFleet(t, modeOf("nixl-pull"), shape{times: gate.Times{Queue: 10 * time.Second}})
	f.p[0].faults(t, `{"slow_first_ms":100}`)
	var most, whole atomic.Int64
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				most.Store(max(most.Load(), int64(f.Router.Stats().Transfers)))
			}
		}
	})
	f.crowd(150, 150, func(i int) {
		if _, complete := f.send(t, soakBody(i%soakPrompts, true), 0); complete {
			whole.Add(1)
		}
	}, func(int) {})
	close(done)
	watching.Wait()
	if whole.Load() != 150 || most.Load() > 64 || most.Load() < 32 {
		t.Errorf("%d of 150 answered, %d at most on their way", whole.Load(), most.Load())
	}
	f.clean()
}

// Whoever finds no place in time is told to come again.
func TestNoPlaceInTime(t *testing.T) {
	f := newFleet(t, modeOf("nixl-pull"), shape{times: gate.Times{Queue: 50 * time.Millisecond}})
	f.p[0].faults(t, `{"slow_first_ms":600}`)
	var mu sync.Mutex
	var statuses []int
	f.crowd(80, 80, func(i int) {
		answer, _, err := post(t, f.Stand, soakBody(i%soakPrompts, true))
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		statuses = append(statuses, answer.StatusCode)
	}, func(int) {})
	if !slices.Contains(statuses, http.StatusServiceUnavailable) || !slices.Contains(statuses, http.StatusOK) {
		t.Errorf("%v", statuses)
	}
	f.clean()
}
