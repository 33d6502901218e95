package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"millrace/serving/engine"
	"millrace/serving/engine/deepinfer"
	"millrace/serving/engine/sim"
	"millrace/serving/engine/tok"
	"millrace/serving/protocol"
	"millrace/serving/protocol/streamtest"
)

// One suite for every driver, each before the simulated engine with the personality of its kind.

// pair is a driver and the personality of the engine that it drives.
type pair struct {
	family      engine.Family
	personality string
}

var pairs = []pair{{engine.VLLM, "vllm"}, {engine.SGLang, "sglang"}, {engine.TRTLLM, "trtllm"}, {engine.DeepInfer, "deepinfer"}, {engine.OpenAI, "openai"}, {engine.Sim, "vllm"}}

// rig is a driver before a running engine of its kind.
type rig struct {
	t   *testing.T
	d   engine.Driver
	url string
	pair
	rank int // data-parallel, that requests name; -1 = none
}

func (p pair) start(t *testing.T, cfg sim.Config) *rig {
	t.Helper()
	r := &rig{t: t, d: driver(t, p.family), pair: p, rank: -1}
	cfg.Personality, cfg.BlockSize, cfg.Faults = p.personality, cmp.Or(r.d.BlockSize(), 16), true
	e, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	h := httptest.NewServer(e.Handler())
	r.url = h.URL
	if p.family == engine.DeepInfer { // its driver is before an adapter, which is before the engine
		adapter := httptest.NewServer(deepinfer.New(deepinfer.Settings{Client: http.DefaultClient, Base: h.URL, Model: "sim"}))
		r.url = adapter.URL
		t.Cleanup(adapter.Close)
	}
	t.Cleanup(func() { cancel(); running.Wait(); h.Close() })
	return r
}

func each(t *testing.T, cfg sim.Config, f func(t *testing.T, r *rig)) {
	for _, p := range pairs {
		t.Run(string(p.family)+" before "+p.personality, func(t *testing.T) { f(t, p.start(t, cfg)) })
	}
}

// tokens are those of a body's prompt.
func (r *rig) tokens(body string) []uint32 {
	r.t.Helper()
	if r.family != engine.DeepInfer {
		ids, err := tok.ApplyChat([]byte(body))
		if err != nil {
			r.t.Fatal(err)
		}
		return ids
	}
	out, err := r.d.PrepareChat(nil, []byte(body), engine.ChatParams{Model: "sim"})
	if err != nil {
		r.t.Fatal(err)
	}
	ids, err := r.d.Tokens(r.t.Context(), http.DefaultClient, r.url, out)
	if err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// open sends a client's body as the gate does.
func (r *rig) open(ctx context.Context, body string, p engine.ChatParams) *http.Response {
	r.t.Helper()
	chat, err := protocol.DecodeChat([]byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	p.Model = chat.Model
	out, err := r.d.PrepareChat(nil, chat.Body, p)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+engine.ChatPath, bytes.NewReader(out))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if name := r.d.Caps().RankHeader; name != "" && r.rank >= 0 {
		req.Header.Set(name, strconv.Itoa(r.rank))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// answer is what a client has in the end, and what the engine counted.
type answer struct {
	Parts  []string // of the canonical form
	Finish string
	Stop   string
	Stream []streamtest.Choice
	report engine.Report
	counts []engine.Report // of each chunk that counted
}

// ask reads a whole stream in both forms.
func (r *rig) ask(body string, p engine.ChatParams) answer {
	r.t.Helper()
	resp := r.open(r.t.Context(), body, p)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("%s: %d %s", body, resp.StatusCode, text)
	}
	var q struct{ N int }
	if err := json.Unmarshal([]byte(body), &q); err != nil {
		r.t.Fatal(err)
	}
	n := max(q.N, 1)
	params := protocol.AnswerParams{ID: "chatcmpl-0123456789abcdef01234567", Model: "m", Created: 1, N: n, Usage: true}
	var turn protocol.Turn
	turn.Reset(&params)
	stream := protocol.NewChatStream(params)
	defer stream.Release()
	var got answer
	var shown []byte
	var events protocol.Events
	var err error
	for done, ended := false, false; !done; {
		for data := events.Next(); data != nil && !done; data = events.Next() {
			if bytes.Contains(data, r.d.UsageMark()) {
				report, err := r.d.Usage(data)
				if err != nil {
					r.t.Fatalf("%s: %v", data, err)
				}
				got.report, got.counts = report, append(got.counts, report)
			}
			var step protocol.Step
			if shown, step, err = stream.Add(shown, data); err != nil {
				r.t.Fatalf("%s: %v", data, err)
			}
			if n == 1 {
				if _, _, err = turn.Add(nil, data, protocol.Silent{}); err != nil {
					r.t.Fatalf("%s: %v", data, err)
				}
			}
			done = step.Done
		}
		switch {
		case done:
		case ended:
			r.t.Fatalf("%s: the stream has no end", body)
		default:
			err := events.Fill(resp.Body)
			if ended = err == io.EOF; err != nil && !ended {
				r.t.Fatal(err)
			}
		}
	}
	if !stream.Complete() {
		r.t.Errorf("%s: the answer is not complete", body)
	}
	whole, err := streamtest.Check(stream.End(stream.Finish(shown, &got.report.Vector)), streamtest.Want{N: n, Usage: true, Model: "m"})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, shown)
	}
	got.Stream, got.Finish, got.Stop = whole.Choices, turn.Finish, string(turn.Stop)
	for i := range got.Stream {
		for j := range got.Stream[i].Calls {
			got.Stream[i].Calls[j].ID = "" // each engine makes its own
		}
	}
	for _, part := range turn.Parts {
		got.Parts = append(got.Parts, fmt.Sprintf("%d %s %s", part.Kind, part.Name, part.Text))
	}
	return got
}
