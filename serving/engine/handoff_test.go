package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/engine"
)

// handoffModes are the lines of the table in docs/pd.md.
var handoffModes = []struct {
	name       string
	family     engine.Family
	transfer   engine.Transfer
	concurrent bool
	alone      bool
}{
	{"nixl-pull", engine.VLLM, engine.Transfer{Backend: "nixl"}, false, true},
	{"nixl-push", engine.VLLM, engine.Transfer{Backend: "nixl", Mode: "push"}, true, true},
	{"mooncake", engine.VLLM, engine.Transfer{Backend: "mooncake"}, true, true},
	{"bootstrap-rooms", engine.SGLang, engine.Transfer{Backend: "mooncake"}, true, false},
	{"context-first", engine.TRTLLM, engine.Transfer{Backend: "ucx"}, false, true},
	{"generation-first", engine.TRTLLM, engine.Transfer{Backend: "ucx", Mode: "generation_first"}, true, true},
}

const (
	handoffClient = `{"model":"acme/llama","messages":[{"role":"user","content":"Grind this."}],"max_completion_tokens":300,"min_tokens":5,"temperature":0,"stop":["}"]}`
	vllmAnswer    = `{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","content":"A"},"finish_reason":"length"}],"usage":{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":16}},` +
		`"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[[3,4,5]],"remote_engine_id":"e-1","remote_request_id":"chatcmpl-r","remote_host":"10.0.0.5","remote_port":5600,"tp_size":4,"a_field_of_tomorrow":{"x":[1]}}}`
	trtllmAnswer = `{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"A"},"finish_reason":"length","disaggregated_params":{"request_type":"context_only","first_gen_tokens":[7],"ctx_request_id":9,"encoded_opaque_state":"AAEC","disagg_request_id":11}}],` +
		`"usage":{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":16}},"prompt_token_ids":[1,2,3]}`
)

func answerOf(f engine.Family) string {
	if f == engine.TRTLLM {
		return trtllmAnswer
	}
	return vllmAnswer
}

func handoffOf(t *testing.T, f engine.Family, tr engine.Transfer) engine.Handoff {
	t.Helper()
	h, err := engine.HandoffOf(driver(t, f), tr)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Both legs of one client's request in every mode, to the byte: what a peer is told must not change by accident. Set
// UPDATE_GOLDEN to write them anew.
func TestGoldenHandoffs(t *testing.T) {
	from := engine.PeerOf(&engine.Spec{Address: "10.0.0.5", Parallel: engine.Parallel{Tensor: 4, Data: 8}, Transfer: &engine.Transfer{Engine: "e-1", Port: 5600}})
	for _, m := range handoffModes {
		d, h := driver(t, m.family), handoffOf(t, m.family, m.transfer)
		if h.Name() != m.name || h.Concurrent() != m.concurrent || h.Alone() != m.alone {
			t.Errorf("%s: %s, concurrent %v, alone %v", m.name, h.Name(), h.Concurrent(), h.Alone())
		}
		from.Rank = 5
		ids, err := h.Mint(bytes.NewReader(bytes.Repeat([]byte{0xa7}, 64)), from)
		if err != nil {
			t.Fatal(err)
		}
		body, err := d.PrepareChat(nil, []byte(handoffClient), engine.ChatParams{Model: "inner", Salt: "s", RequestID: "attempt"})
		if err != nil {
			t.Fatal(err)
		}
		handed, err := h.Read([]byte(answerOf(m.family)))
		if err != nil || handed.Complete || !handed.Reported || handed.Report.Vector[usage.Cached] != 16 {
			t.Fatalf("%s: %+v %v", m.name, handed, err)
		}
		over := engine.Handover{IDs: ids, From: from}
		p, dd := h.Prefill(nil, body, over), h.Decode(nil, body, over, &handed)
		abort := h.Abort(over)
		var text bytes.Buffer
		for _, leg := range []struct {
			name string
			body []byte
		}{{"prefill", p}, {"decode", dd}} {
			if !json.Valid(leg.body) {
				t.Fatalf("%s: the %s body is no JSON: %s", m.name, leg.name, leg.body)
			}
			text.WriteString(leg.name + "\n")
			_ = json.Indent(&text, leg.body, "", "\t")
			text.WriteString("\n")
		}
		text.WriteString("abort " + abort.Path + " " + string(abort.Body) + "\n")
		goldenIn(t, "handoff", m.name+".txt", text.String())
	}
}

func goldenIn(t *testing.T, dir, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", dir, name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

// What P answers decides what D is told, and whether D is needed at all.
func TestWhatPrefillsAnswer(t *testing.T) {
	for _, m := range handoffModes {
		h := handoffOf(t, m.family, m.transfer)
		stopped := strings.ReplaceAll(answerOf(m.family), `"length"`, `"stop"`)
		handed, err := h.Read([]byte(stopped))
		complete := m.name == "mooncake" || m.family == engine.TRTLLM
		if err != nil || handed.Complete != complete {
			t.Errorf("%s: an answer that stopped: %+v %v", m.name, handed, err)
		}
		for _, bad := range []string{"", "{", `{}`, `{"choices":[]}`, strings.ReplaceAll(answerOf(m.family), `"length"`, `"abort"`)} {
			if _, err := h.Read([]byte(bad)); err == nil {
				t.Errorf("%s took %.40q for an answer", m.name, bad)
			}
		}
	}
	pull := handoffOf(t, engine.VLLM, engine.Transfer{Backend: "nixl"})
	handed, err := pull.Read([]byte(`{"choices":[{"finish_reason":"length"}],"kv_transfer_params":null}`))
	if err != nil || handed.Params != nil || handed.Reported {
		t.Errorf("without parameters: %+v %v", handed, err)
	}
	if body := pull.Decode(nil, []byte(`{"model":"m"}`), engine.Handover{}, &handed); bytes.Contains(body, []byte("kv_transfer_params")) {
		t.Errorf("D was told of a P that told nothing: %s", body)
	}
	if _, err := handoffOf(t, engine.TRTLLM, engine.Transfer{Backend: "ucx"}).Read([]byte(vllmAnswer)); err == nil {
		t.Error("a context server without parameters passed")
	}
}

// Ids are fresh, in their range, and where a rank is wanted the room is that rank's.
func TestMintedIDs(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	for _, m := range handoffModes {
		h, seen := handoffOf(t, m.family, m.transfer), map[engine.HandoffIDs]bool{}
		for i := range 2000 {
			from := engine.Peer{Parallel: engine.Parallel{Data: 1 + i%9}, Rank: i%(1+i%9) - i%2}
			ids, err := h.Mint(random, from)
			if err != nil || seen[ids] || ids.Room < 0 {
				t.Fatalf("%s: %+v %v", m.name, ids, err)
			}
			seen[ids] = true
			if ranks := int64(from.Parallel.Data); m.family == engine.SGLang && from.Rank >= 0 && ids.Room%ranks != int64(from.Rank) {
				t.Fatalf("room %d is not rank %d's of %d", ids.Room, from.Rank, ranks)
			}
		}
		if _, err := h.Mint(strings.NewReader("short"), engine.Peer{}); err == nil {
			t.Errorf("%s minted ids of nothing", m.name)
		}
	}
	edge, err := handoffOf(t, engine.SGLang, engine.Transfer{Backend: "nixl"}).Mint(bytes.NewReader(bytes.Repeat([]byte{0xff}, 64)), engine.Peer{Parallel: engine.Parallel{Data: 6}, Rank: 5})
	if err != nil || edge.Room < 0 || edge.Room%6 != 5 {
		t.Errorf("the largest room: %d %v", edge.Room, err)
	}
}

func TestUnknownHandoffs(t *testing.T) {
	for f, transfers := range map[engine.Family][]engine.Transfer{
		engine.VLLM: {{Backend: "ucx"}, {Backend: "nixl", Mode: "context_first"}, {}}, engine.SGLang: {{Backend: "ucx"}},
		engine.TRTLLM: {{Backend: "mooncake"}, {Backend: "ucx", Mode: "pull"}}, engine.OpenAI: {{Backend: "nixl"}}, engine.LlamaCpp: {{Backend: "nixl"}},
	} {
		for _, tr := range transfers {
			if _, err := engine.HandoffOf(driver(t, f), tr); !errors.Is(err, engine.ErrUnsupported) {
				t.Errorf("%s %+v: %v", f, tr, err)
			}
		}
	}
}

// Prompt and cached come from P, what was generated from D.
func TestJoinedReports(t *testing.T) {
	p := engine.Report{Vector: usage.Vector{usage.Input: 24, usage.Cached: 16, usage.Output: 1, usage.Requests: 1}, Raw: []byte(`{"a":1}`), CachedKnown: true}
	d := engine.Report{Vector: usage.Vector{usage.Cached: 40, usage.Output: 6, usage.Reasoning: 3, usage.Requests: 1}, Raw: []byte(`{"b":2}`), CachedKnown: true}
	got := engine.JoinReports(p, d)
	if got.Vector != (usage.Vector{usage.Input: 24, usage.Cached: 16, usage.Output: 6, usage.Reasoning: 3, usage.Requests: 1}) || string(got.Raw) != `{"prefill":{"a":1},"decode":{"b":2}}` || !got.CachedKnown {
		t.Errorf("%+v %s", got, got.Raw)
	}
}

// One leg for each image, without text; what encoders answer becomes one member.
func TestEncoderLegs(t *testing.T) {
	e := driver(t, engine.VLLM).(engine.Encoding)
	body := []byte(`{"model":"inner","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:a"}},{"type":"image_url","image_url":{"url":"data:b"}}]}],"tools":[{}],"stream":true,"max_tokens":9,"request_id":"x","cache_salt":"s"}`)
	legs, fits := e.Encode(body, "r", 2)
	if !fits || len(legs) != 2 {
		t.Fatalf("%d legs, %v", len(legs), fits)
	}
	if want := `{"model":"inner","cache_salt":"s","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:b"}}]}],"stream":false,"max_tokens":1,"request_id":"r-enc-1"}`; string(legs[1]) != want {
		t.Errorf("%s", legs[1])
	}
	if _, fits := e.Encode(body, "r", 1); fits {
		t.Error("more items than are allowed")
	}
	if got := string(e.Encoded([][]byte{[]byte(`{"ec_transfer_params":{"h1":{"peer_host":"a"}}}`), []byte(`{}`), []byte(`{"ec_transfer_params":{"h2":{}}}`)})); got != `,"ec_transfer_params":{"h1":{"peer_host":"a"},"h2":{}}` {
		t.Error(got)
	}
	if got := e.Encoded([][]byte{[]byte(`{}`)}); got != nil {
		t.Errorf("%s", got)
	}
}
