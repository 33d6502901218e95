package gate_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/internal/usage"
	"millrace/serving/engine/sim"
	"millrace/serving/gate"
	"millrace/serving/protocol/streamtest"
)

// hasty are deadlines that tests can wait for.
var hasty = gate.Times{Prefill: time.Second, Transfer: time.Second, Trail: 300 * time.Millisecond, Queue: 5 * time.Second, FirstToken: 10 * time.Second}

// incident is a half-failure that was reported of a serving stack, replayed.
type incident struct {
	line   string // where it was reported
	says   string
	modes  []string // empty = all
	shape  shape
	breaks func(f *fleet)
	body   string // "" = carried, streamed

	status  int // that the client gets; 0 = 200 and the whole answer
	again   bool
	alone   bool
	check   func(t *testing.T, f *fleet, e *usage.Event)
	message string
}

var sequentialModes, concurrentModes = []string{"nixl-pull", "context-first"}, []string{"nixl-push", "mooncake", "bootstrap-rooms", "generation-first"}
var aloneModes = []string{"nixl-pull", "nixl-push", "mooncake", "context-first", "generation-first"}

var incidents = []incident{
	{line: "dynamo#13088", says: "P hangs after it was chosen, until the client leaves: the stage has a deadline, another pair serves",
		shape: shape{p: 2, times: hasty}, breaks: func(f *fleet) { f.p[0].faults(f.t, `{"hang":true}`); f.busy(f.p[1]) }, again: true},
	{line: "dynamo#13088", says: "D hangs after it was chosen",
		shape: shape{d: 2, times: hasty}, breaks: func(f *fleet) { f.d[0].faults(f.t, `{"hang":true}`); f.busy(f.d[1]) }, again: true},
	{line: "dynamo#6678", says: "D is told nothing and computes everything again: never without being counted", modes: sequentialModes,
		shape: shape{maxPrompt: 4096}, breaks: func(f *fleet) { f.p[0].faults(f.t, `{"no_params":true}`) }, alone: true},
	{line: "dynamo#6678", says: "the same with a prompt that D may not compute: another pair, or an error", modes: sequentialModes,
		breaks: func(f *fleet) { f.p[0].faults(f.t, `{"no_params":true}`) }, status: http.StatusBadGateway},
	{line: "vllm PR#26171", says: "P dies in the middle of the transfer: D does not wait for ever", modes: concurrentModes,
		shape: shape{p: 2, times: hasty}, breaks: func(f *fleet) {
			f.p[0].faults(f.t, `{"reset_first":true}`)
			f.busy(f.p[1])
		}, again: true},
	{line: "vllm#27083", says: "P tells an address at which it is not: the transfer fails, another pair serves", modes: []string{"nixl-push", "bootstrap-rooms", "mooncake", "generation-first"},
		shape: shape{p: 2, d: 2, times: hasty}, breaks: func(f *fleet) { f.p[0].part.Peer.Port, f.p[1].part.Peer.Port = 9, 9 }, status: http.StatusBadGateway},
	{line: "llm-d#2433", says: "P refuses with a server's error: the client gets an error, not a hang",
		shape: shape{times: hasty}, breaks: func(f *fleet) { f.p[0].faults(f.t, `{"fail_before_first":500}`) }, status: http.StatusBadGateway},
	{line: "sglang#12779", says: "P's death is not D's: D serves on with another P", shape: shape{p: 2, times: hasty},
		breaks: func(f *fleet) { f.p[0].kill(); f.busy(f.p[1]) },
		check: func(t *testing.T, f *fleet, _ *usage.Event) {
			for range 6 {
				if answer, body, err := post(t, f.Stand, carried+streamed+"}"); err != nil || answer.StatusCode != 200 {
					t.Errorf("%v %v %s", err, answer, body)
				}
			}
			for _, e := range f.Log.Events()[1:] {
				if n := len(e.Attempts); e.Ending != usage.Complete || e.Attempts[n-1].Unit != f.d[0].part.ID {
					t.Errorf("%+v", e.Attempts)
				}
			}
		}},
	{line: "sglang#10110", says: "P waits in its queue for minutes: our wait has a bound", shape: shape{p: 2, times: hasty},
		breaks: func(f *fleet) {
			f.p[0].faults(f.t, `{"slow_first_ms":5000}`)
			f.busy(f.p[1])
		}, again: true},
	{line: "sglang PR#26486", says: "answers of one request share a room: it is not handed over", modes: []string{"bootstrap-rooms"},
		body: strings.Replace(carried, `"temperature"`, `"n":2,"temperature"`, 1) + "}", status: http.StatusBadRequest, message: `"n"`},
	{line: "sglang PR#26486", says: "where D can, it answers alone", modes: aloneModes, shape: shape{maxPrompt: 4096},
		body: strings.Replace(carried, `"temperature"`, `"n":2,"temperature"`, 1) + "}",
		check: func(t *testing.T, f *fleet, e *usage.Event) {
			if len(e.Attempts) != 1 || e.Attempts[0].Leg != "" || f.d[0].Handovers().Transfers != 0 {
				t.Errorf("%+v", e.Attempts)
			}
		}},
	{line: "kthena#1423", says: "a retry in the room of the try before ends the scheduler: rooms are never used again", shape: shape{d: 2, times: hasty},
		breaks: func(f *fleet) {
			f.d[0].faults(f.t, `{"reset_first":true}`)
			f.busy(f.d[1])
		}, again: true},
	{line: "sglang#15674", says: "P and D do not match: the transfer is refused, and that is an error", shape: shape{times: hasty},
		breaks: func(f *fleet) { f.d[0].faults(f.t, `{"transfer_fails":true}`) }, status: http.StatusBadGateway},
	{line: "sglang#12688", says: "one D of two does not match", shape: shape{d: 2, times: hasty},
		breaks: func(f *fleet) { f.d[0].faults(f.t, `{"transfer_fails":true}`); f.busy(f.d[1]) }, again: true},
	{line: "vllm-ascend#13140", says: "D answers 200 and nothing", shape: shape{d: 2, times: hasty},
		breaks: func(f *fleet) {
			f.d[0].faults(f.t, `{"empty_answer":true}`)
			f.busy(f.d[1])
		}, again: true},
	{line: "vllm-ascend#13140", says: "the only D answers 200 and nothing", shape: shape{times: hasty},
		breaks: func(f *fleet) { f.d[0].faults(f.t, `{"empty_answer":true}`) }, status: http.StatusBadGateway},
	{line: "vllm-ascend#13140", says: "P answers 200 and nothing", shape: shape{times: hasty},
		breaks: func(f *fleet) { f.p[0].faults(f.t, `{"empty_answer":true}`) }, status: http.StatusBadGateway},
	{line: "llm-d-benchmark PR#878", says: "nobody is at P's port: D alone, within the limit, and it is counted", modes: aloneModes, shape: shape{maxPrompt: 4096, times: hasty},
		breaks: func(f *fleet) { f.p[0].kill() }, alone: true},
	{line: "llm-d-benchmark PR#878", says: "above the limit it is an error", modes: aloneModes, shape: shape{maxPrompt: 20, times: hasty},
		breaks: func(f *fleet) { f.p[0].kill() }, status: http.StatusBadGateway},
	{line: "llm-d#187", says: "an engine refuses what the client sent: nobody tries it elsewhere", shape: shape{p: 2, times: hasty},
		breaks: func(f *fleet) {
			f.p[0].faults(f.t, `{"fail_before_first":400}`)
			f.p[1].faults(f.t, `{"fail_before_first":400}`)
		}, status: http.StatusBadRequest},
}

// Half-failures of units whose engines hand prompts over, as they were reported of others, in every mode that can have them.
func TestHalfFailures(t *testing.T) {
	for _, i := range incidents {
		for _, m := range handoffs {
			if len(i.modes) > 0 && !slices.Contains(i.modes, m.name) {
				continue
			}
			t.Run(i.line+"/"+m.name+"/"+i.says, func(t *testing.T) {
				t.Parallel()
				i.replay(t, m)
			})
		}
	}
}

func (i *incident) replay(t *testing.T, m mode) {
	s := i.shape
	s.change = func(c *sim.Config) { c.Lease, c.PeerWait = 2*time.Second, 5*time.Second }
	f := newFleet(t, m, s)
	if i.breaks != nil {
		i.breaks(f)
	}
	body := i.body
	if body == "" {
		body = carried + streamed + "}"
	}
	begun := time.Now()
	answer, got, err := post(t, f.Stand, body)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("it took %v", took)
	}
	want := i.status
	if want == 0 {
		want = 200
	}
	if answer.StatusCode != want || !strings.Contains(string(got), i.message) {
		t.Fatalf("status %d: %s", answer.StatusCode, got)
	}
	if i.message != "" { // it was not let in
		return
	}
	e := f.Event(t)
	if want == 200 && e.Ending != usage.Complete || want != 200 && (e.Ending != usage.FailedUnbilled || e.Charge != 0) {
		t.Errorf("%+v", e)
	}
	if want == 200 && i.body == "" {
		i.compare(t, f, got, e)
	}
	st := f.Gate.Stats()
	if i.alone != (st.Alone > 0) || i.again && st.Again == 0 || st.Replayed != 0 {
		t.Errorf("%+v", st)
	}
	if i.check != nil {
		i.check(t, f, e)
	}
	f.clean()
	for _, n := range append(append([]*node{}, f.p...), f.d...) {
		if h := n.Handovers(); h.Deaths != 0 {
			t.Errorf("an engine died: %+v", h)
		}
	}
}

// compare checks that the answer is whole and billed as one engine's.
func (i *incident) compare(t *testing.T, f *fleet, got []byte, e *usage.Event) {
	t.Helper()
	one := f.aggregated(carried)
	_, plain, _ := post(t, one, carried+streamed+"}")
	a, err := streamtest.Check(got, streamtest.Want{Model: "acme/test"})
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	if b := mustStream(t, plain, false); a.Error != nil || a.Choices[0].Content != b.Choices[0].Content {
		t.Errorf("%q, one engine says %q", a.Choices[0].Content, b.Choices[0].Content)
	}
	if o := one.Event(t); e.Usage.Prompt() != o.Usage.Prompt() || e.Usage.Generated() != o.Usage.Generated() {
		t.Errorf("billed %v, one engine %v", e.Usage, o.Usage)
	}
}

// A client that leaves while a prompt is handed over: P's leg is not cut off in the middle of its transfer, nothing stays
// lent, booked or held, and the pair serves on (dynamo PR#7489, vllm#50425).
func TestClientsLeaveDuringHandovers(t *testing.T) {
	for _, m := range handoffs {
		for _, at := range []struct{ name, p, d string }{
			{"while P computes", `{"slow_first_ms":150}`, `{}`},
			{"during the transfer", `{"transfer_ms":150}`, `{}`},
			{"before D's first token", `{}`, `{"slow_first_ms":150}`},
		} {
			t.Run(m.name+"/"+at.name, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, m, shape{times: gate.Times{Trail: time.Second}, change: func(c *sim.Config) { c.Lease, c.PeerWait = 2*time.Second, 5*time.Second }})
				f.p[0].faults(t, at.p)
				f.d[0].faults(t, at.d)
				ctx, leave := context.WithTimeout(t.Context(), 60*time.Millisecond)
				defer leave()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, strings.NewReader(carried+streamed+"}"))
				if err != nil {
					t.Fatal(err)
				}
				if answer, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
				if e := f.Event(t); e.Ending != usage.ClientLeft || e.Charge != 0 {
					t.Errorf("%+v", e)
				}
				f.clean()
				f.p[0].faults(t, `{}`)
				f.d[0].faults(t, `{}`)
				if answer, body, err := post(t, f.Stand, carried+streamed+"}"); err != nil || answer.StatusCode != 200 {
					t.Errorf("afterwards: %v %v %s", err, answer, body)
				}
				f.clean()
			})
		}
	}
}

// D breaks off in the middle of an answer: another goes on with it, the client sees one answer, nothing is billed twice. Where
// sampling would show where, or nobody is left, the stream ends with an error.
func TestAnswersAreContinuedElsewhere(t *testing.T) {
	for _, m := range handoffs {
		for _, c := range []struct {
			name, fault string
			d           int
			body        string
			goesOn      bool
		}{
			{"a stream that is cut", `{"die_after_tokens":7,"times":1}`, 2, carried + streamed + "}", true},
			{"a whole answer", `{"die_after_tokens":7,"times":1}`, 2, carried + "}", true},
			{"a stream that is reset", `{"reset_after_tokens":7,"times":1}`, 2, carried + streamed + "}", true},
			{"an error in the stream", `{"error_in_stream":7,"times":1}`, 2, carried + streamed + "}", true},
			{"with a seed", `{"die_after_tokens":7,"times":1}`, 2, strings.Replace(carried, `"temperature":0`, `"seed":3`, 1) + streamed + "}", true},
			{"a temperature", `{"die_after_tokens":7,"times":1}`, 2, strings.Replace(carried, `"temperature":0`, `"temperature":1`, 1) + streamed + "}", false},
			{"a schema", `{"die_after_tokens":7,"times":1}`, 2, strings.Replace(carried, `"temperature"`, `"response_format":{"type":"json_object"},"temperature"`, 1) + streamed + "}", false},
			{"nobody else", `{"die_after_tokens":7}`, 1, carried + streamed + "}", false},
		} {
			t.Run(m.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				goesOn := c.goesOn && m.personality != "trtllm" // it cannot go on with a message
				f := newFleet(t, m, shape{d: c.d, p: 2, times: gate.Times{Trail: time.Second}, change: func(cfg *sim.Config) { cfg.Lease = 2 * time.Second }})
				for _, n := range f.d {
					n.faults(t, c.fault)
				}
				if goesOn { // only the first one that is asked breaks off
					f.d[1].faults(t, `{}`)
					f.busy(f.d[1])
				}
				answer, got, err := post(t, f.Stand, c.body)
				if err != nil {
					t.Fatal(err)
				}
				e := f.Event(t)
				if !goesOn {
					if !strings.Contains(string(got), `"error"`) || e.Ending == usage.Complete {
						t.Errorf("%d %s %+v", answer.StatusCode, got, e)
					}
					f.clean()
					return
				}
				one := f.aggregated("")
				_, want, _ := post(t, one, c.body)
				check := streamtest.Check
				if c.body == carried+"}" {
					check = streamtest.Whole
				}
				a, err := check(got, streamtest.Want{Model: "acme/test", Usage: c.body == carried+"}"})
				if err != nil {
					t.Fatalf("%v\n%s", err, got)
				}
				b, err := check(want, streamtest.Want{Model: "acme/test", Usage: c.body == carried+"}"})
				if err != nil {
					t.Fatal(err)
				}
				if a.Error != nil || a.Choices[0].Content != b.Choices[0].Content || a.Choices[0].Finish != b.Choices[0].Finish {
					t.Errorf("continued:\n%q %s\nby one engine:\n%q %s", a.Choices[0].Content, a.Choices[0].Finish, b.Choices[0].Content, b.Choices[0].Finish)
				}
				o := one.Event(t)
				if e.Usage.Prompt() != o.Usage.Prompt() || e.Usage.Generated() != o.Usage.Generated() || e.Ending != usage.Complete || f.Gate.Stats().Replayed == 0 {
					t.Errorf("billed %v, one engine %v: %+v", e.Usage, o.Usage, e)
				}
				var prompt, generated int64
				for _, a := range e.Attempts {
					prompt, generated = prompt+a.Prompt, generated+a.Generated
				}
				if prompt != e.Usage.Prompt() || generated < 7 || generated >= e.Usage.Generated() {
					t.Errorf("shares of %v: %+v", e.Usage, e.Attempts)
				}
				f.clean()
			})
		}
	}
}

// busy makes an engine look as if others gave it much to do: it is the last to be chosen.
func (f *fleet) busy(n *node) { f.load(n, 1000) }

// load is what an engine's last report says of how much it does.
func (f *fleet) load(n *node, running int) {
	f.Router.Apply(wire.Fact{Load: &wire.Load{Unit: n.part.ID, State: wire.StateReady, Running: running}})
}
