package measure

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/serving/engine"
	"millrace/serving/engine/sim"
	"millrace/serving/recipe"
)

// pipes is a network of one listener in memory, so that a bubble of synctest sees all of it wait.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// against runs a simulated engine of a cost, and gives it as a target.
func against(t *testing.T, cost sim.Cost, fn func(t *testing.T, target *Target)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, err := sim.New(sim.Config{Model: "sim", Cost: cost, Context: 1 << 20, Slots: 64, Speed: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		line := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := e.Serve(ctx, line); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		transport := &http.Transport{DialContext: line.dial}
		driver, err := engine.Lookup(engine.Sim)
		if err != nil {
			t.Fatal(err)
		}
		fn(t, &Target{Base: "http://sim", Model: "sim", Driver: driver, Client: &http.Client{Transport: transport}})
		transport.CloseIdleConnections()
		cancel()
		wg.Wait()
	})
}

func TestAMeasuredEngineGivesItsCostBack(t *testing.T) {
	cost := sim.Cost{A0: 20e6, A1: 50e3, A2: 0, B0: 10e6, B1: 100e3, B2: 500}
	against(t, cost, func(t *testing.T, target *Target) {
		sweep, err := target.Run(t.Context(), Plan{MaxPrompt: 8192, MaxBatch: 16}, 1, io.Discard)
		if err != nil || len(sweep.Errors) > 0 {
			t.Fatal(err, sweep)
		}
		got, err := recipe.Fit(sweep.Prefill, sweep.Decode)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string][2]float64{"a1": {got.A1, 50}, "b0": {got.B0, 10_000}, "b1": {got.B1, 100}, "b2": {got.B2, 0.5}} {
			if math.Abs(v[0]-v[1]) > 0.05*v[1] {
				t.Errorf("%s is %v, the engine's is %v", name, v[0], v[1])
			}
		}
		if got.Error > 0.05 || got.A0 < 15_000 || got.A0 > 35_000 { // the first token's own step is part of it
			t.Errorf("%+v", got)
		}
		if sweep.Prompt < 1000 || sweep.Output < 100 {
			t.Errorf("%+v", sweep)
		}
	})
}

func TestAWorkloadIsCounted(t *testing.T) {
	against(t, sim.Cost{A0: 1e6, A1: 1e3, B0: 1e6, B1: 1e3}, func(t *testing.T, target *Target) {
		w := Workload{Name: "agent", Prompt: 4096, Shared: 3072, Output: 64}
		got := target.Serve(t.Context(), w, 4, 5*time.Second, 7)
		if got.Requests < 100 || got.Failed != 0 || got.FirstP99 < got.FirstP50 || got.TokenP50 <= 0 {
			t.Errorf("%+v", got)
		}
		if got.HitShare < 0.6 || got.HitShare > 0.8 {
			t.Errorf("of the prompts %.2f were cached, three quarters are shared", got.HitShare)
		}
		if cost := got.CostPerMillion(8, 2); math.Abs(cost*(got.PromptRate+got.OutputRate)*3600/1e6-16) > 1e-6 {
			t.Errorf("a million tokens cost %v", cost)
		}
	})
}

func TestABrokenEndpointIsNoSample(t *testing.T) {
	for name, answer := range map[string]string{
		"cut":      "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
		"empty":    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":0,\"total_tokens\":1}}\n\ndata: [DONE]\n\n",
		"no count": "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n",
	} {
		driver, err := engine.Lookup(engine.VLLM)
		if err != nil {
			t.Fatal(err)
		}
		target := &Target{Base: "http://x", Model: "m", Driver: driver, Client: &http.Client{Transport: canned(answer)}}
		if _, err := target.Run(t.Context(), Plan{MaxPrompt: 1024, MaxBatch: 2}, 1, io.Discard); err == nil {
			t.Errorf("%s: measured", name)
		}
	}
}

type canned string

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(c)))}, nil
}
