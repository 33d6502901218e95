package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine/sim"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol/streamtest"
)

// Requests of the soak, over all modes.
const (
	soakRequests = 10_000
	soakShort    = 300
	soakAtOnce   = 16
)

// Faults that the soak's engines have, one request each.
var (
	prefillFaults = []string{`{"fail_before_first":500,"times":1}`, `{"fail_before_first":503,"times":1}`, `{"hang":true,"times":1}`, `{"reset_first":true,"times":1}`,
		`{"empty_answer":true,"times":1}`, `{"no_params":true,"times":1}`, `{"slow_first_ms":20,"times":1}`, `{"transfer_ms":20,"times":1}`, `{"no_usage":true,"times":1}`}
	decodeFaults = []string{`{"fail_before_first":500,"times":1}`, `{"fail_before_first":503,"times":1}`, `{"hang":true,"times":1}`, `{"reset_first":true,"times":1}`,
		`{"empty_answer":true,"times":1}`, `{"die_after_tokens":4,"times":1}`, `{"reset_after_tokens":9,"times":1}`, `{"error_in_stream":3,"times":1}`,
		`{"transfer_fails":true,"times":1}`, `{"stall_after_tokens":5,"times":1}`, `{"slow_first_ms":20,"times":1}`}
)

func soakSize() int {
	if testing.Short() {
		return soakShort
	}
	return soakRequests
}

// After thousands of requests of all kinds, with faults in one of twenty and clients that leave, nothing is left of any: no
// booking, no hold, no lease, no room, no goroutine; no engine has died; and the money is what the answers say.
func TestNothingIsLeftOfManyRequests(t *testing.T) {
	each := soakSize() / len(handoffs)
	for _, m := range handoffs {
		t.Run(m.name, func(t *testing.T) { soak(t, m, each) })
	}
}

func soak(t *testing.T, m mode, requests int) {
	f := newFleet(t, m, shape{p: 2, d: 2, maxPrompt: 300, change: func(c *sim.Config) { c.Lease, c.PeerWait = 3*time.Second, 5*time.Second },
		times: gate.Times{Prefill: time.Second, Transfer: time.Second, Trail: time.Second, Idle: time.Second, Report: time.Second}})
	one := f.beside()
	want := f.expected(t, one)
	http.DefaultClient.CloseIdleConnections()
	time.Sleep(50 * time.Millisecond) // the servers notice
	base := runtime.NumGoroutine()
	var faults, whole, wrong atomic.Int64
	places := make(chan struct{}, soakAtOnce)
	var running sync.WaitGroup
	for i := range requests {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		if i%40 == 0 { // three quarters of the time the whole engine looks busy
			f.load(one, map[bool]int{true: 0, false: 200}[i%160 == 0])
		}
		if random.IntN(20) == 0 {
			faults.Add(1)
			if random.IntN(2) == 0 {
				f.p[random.IntN(2)].faults(t, prefillFaults[random.IntN(len(prefillFaults))])
			} else {
				f.d[random.IntN(2)].faults(t, decodeFaults[random.IntN(len(decodeFaults))])
			}
		}
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			prompt, streams := random.IntN(len(want)), random.IntN(2) == 0
			leaves := time.Duration(0)
			if random.IntN(12) == 0 {
				leaves = time.Duration(random.IntN(8000)) * time.Microsecond
			}
			text, complete := f.send(t, soakBody(prompt, streams), leaves)
			if !complete {
				return
			}
			whole.Add(1)
			if text != want[prompt] {
				if wrong.Add(1) < 4 {
					t.Errorf("%q\nwant %q", text, want[prompt])
				}
			}
		})
	}
	running.Wait()
	for _, n := range append(append([]*node{}, f.p...), f.d...) {
		n.faults(t, `{}`)
	}
	f.clean()
	f.account(requests, int(whole.Load()))
	if h := one.Handovers(); h.Running != 0 {
		t.Errorf("the whole engine: %+v", h)
	}
	if after := f.settled(base); after > base {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before\n%s", after, base, stacks[:runtime.Stack(stacks, true)])
	}
	s := f.Gate.Stats()
	t.Logf("%d requests, %d faults, %d whole answers, %+v", requests, faults.Load(), whole.Load(), s)
	if s.Handed < int64(requests)/10 || whole.Load() < int64(requests)*8/10 {
		t.Errorf("too little was handed over, or answered: %+v, %d of %d", s, whole.Load(), requests)
	}
}

// beside puts a unit that does all itself beside the pair.
func (f *fleet) beside() *node {
	f.t.Helper()
	n := f.start("whole", &shape{})
	u, err := catalogue.NewUnit(catalogue.Spec{ID: ids.New(), Name: "whole", Model: f.Model.ID, Engine: f.mode.family, UpstreamModel: "inner", Base: n.url}, clock.System, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(u.Pool().Close)
	n.part, f.Model.Units = u, append(f.Model.Units, u)
	return n
}

// soakPrompts differ in length: some are worth a hand-over, some are below what decode may compute itself.
const soakPrompts = 12

func soakBody(prompt int, streams bool) string {
	members := ""
	if streams {
		members = `,"stream":true`
	}
	return fmt.Sprintf(`{"model":"acme/test","messages":[{"role":"user","content":%q}],"temperature":0,"max_tokens":%d%s}`,
		strings.Repeat(fmt.Sprintf("sack %d of grain ", prompt), 3+prompt*prompt*2), 12+prompt, members)
}

// expected asks the whole engine, without a gate, for what each prompt is answered with.
func (f *fleet) expected(t *testing.T, one *node) (want [soakPrompts]string) {
	t.Helper()
	for i := range want {
		body := strings.Replace(soakBody(i, false), "acme/test", "inner", 1)
		status, answer := tell(t, one.url+"/v1/chat/completions", body)
		var a struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(answer), &a); err != nil || status != 200 || len(a.Choices) == 0 {
			t.Fatalf("%d %s", status, answer)
		}
		want[i] = a.Choices[0].Message.Content
	}
	return want
}

// send sends one request and reads its answer, or leaves in the middle. complete says that the whole answer came.
func (f *fleet) send(t *testing.T, body string, leaves time.Duration) (text string, complete bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if leaves > 0 {
		defer time.AfterFunc(leaves, cancel).Stop()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return "", false
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		if leaves == 0 {
			t.Error(err)
		}
		return "", false
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		if err != nil && leaves == 0 {
			t.Error(err)
		}
		return "", false
	}
	check := streamtest.Whole
	if strings.Contains(body, `"stream"`) {
		check = streamtest.Check
	}
	a, err := check(got, streamtest.Want{Model: gatetest.ModelName})
	if err != nil {
		t.Errorf("%v\n%s", err, got)
		return "", false
	}
	return a.Choices[0].Content, a.Error == nil && a.Choices[0].Finish != ""
}

// account checks every event against the prices, and all of them against what was charged.
func (f *fleet) account(requests, whole int) {
	f.t.Helper()
	sum, complete := money.Nano(0), 0
	for _, e := range f.Log.Events() {
		cost, ok := f.Prices.Quoted.Cost(e.Usage)
		if err := e.Validate(); err != nil || !ok || e.Charge != cost.Nano() {
			f.t.Errorf("%v, %d of %v: %+v", err, e.Charge, cost, e)
		}
		var prompt, generated int64
		for i, a := range e.Attempts {
			if prompt, generated = prompt+a.Prompt, generated+a.Generated; i < len(e.Attempts)-1 && a.Leg == "" && a.Note == "" {
				f.t.Errorf("an attempt without a reason: %+v", e.Attempts)
			}
		}
		if prompt > e.Usage.Prompt() || generated > e.Usage.Generated() || e.Ending == usage.FailedUnbilled && e.Charge != 0 {
			f.t.Errorf("shares above the bill: %+v", e)
		}
		if sum += e.Charge; e.Ending == usage.Complete {
			complete++
		}
	}
	if n := len(f.Log.Events()); n > requests || complete < whole { // clients that left at once were never let in
		f.t.Errorf("%d events of %d requests, %d complete, %d answers came whole", n, requests, complete, whole)
	}
	if sum != f.Budgets.Settled() {
		f.t.Errorf("events of %d, settled %d", sum, f.Budgets.Settled())
	}
	for _, n := range append(append([]*node{}, f.p...), f.d...) {
		if h := n.Handovers(); h.Deaths != 0 {
			f.t.Errorf("an engine died: %+v", h)
		}
	}
}

// settled waits until there are no more goroutines than before, idle connections being closed, and gives how many there are.
func (f *fleet) settled(before int) (n int) {
	for _, u := range f.Model.Units {
		for _, e := range u.Engines() {
			e.Pool().Close()
			e.Client().CloseIdleConnections()
		}
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		http.DefaultClient.CloseIdleConnections()
		if n = runtime.NumGoroutine(); n <= before {
			break
		}
	}
	return n
}
