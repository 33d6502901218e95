package engine_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/engine"
)

func TestEveryFamilyHasADriver(t *testing.T) {
	for _, f := range engine.Families() {
		d := driver(t, f)
		if d.Family() != f || d.Label() == "" || len(d.UsageMark()) == 0 {
			t.Errorf("%s: %q", f, d.Label())
		}
		_, err := d.Command(engine.Spec{Executable: "/bin/x", Model: "m", ModelPath: "/w", Port: 9, DataDir: "/d", Agent: "/bin/agent"})
		if d.Caps().Supervised != (err == nil) {
			t.Errorf("%s: supervised is %v, command says %v", f, d.Caps().Supervised, err)
		}
	}
	if !strings.Contains(driver(t, engine.Sim).Label(), "simulated") {
		t.Error("the simulated engine does not say so")
	}
	if _, err := engine.Lookup("tgi"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "vllm") {
		t.Errorf("%v", err)
	}
}

func TestCommands(t *testing.T) {
	spec := engine.Spec{Executable: "/opt/e", Model: "m", ModelPath: "/w", Port: 8001, KVPort: 8002, ReplayPort: 8003,
		Context: 4096, Slots: 16, Extra: []string{"--extra"}, DataDir: "/d"}
	for family, want := range map[engine.Family]string{
		engine.VLLM: `/opt/e serve /w --served-model-name m --host 127.0.0.1 --port 8001 --enable-prefix-caching --enable-prompt-tokens-details --scheduling-policy priority --enable-scale-out` +
			` --max-model-len 4096 --max-num-seqs 16 --kv-events-config {"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://127.0.0.1:8002","replay_endpoint":"tcp://127.0.0.1:8003","topic":"kv-events"} --extra`,
		engine.SGLang: `/opt/e --model-path /w --served-model-name m --host 127.0.0.1 --port 8001 --page-size 16 --enable-cache-report --enable-metrics` +
			` --enable-priority-scheduling --schedule-low-priority-values-first --default-priority-value 0 --disable-priority-preemption --context-length 4096 --max-running-requests 16` +
			` --kv-events-config {"publisher":"zmq","endpoint":"tcp://127.0.0.1:8002","replay_endpoint":"tcp://127.0.0.1:8003","topic":"kv-events"} --extra`,
		engine.TRTLLM:   `/opt/e /w --host 127.0.0.1 --port 8001 --config /d/trtllm.yaml --max_seq_len 4096 --max_batch_size 16 --extra`,
		engine.Sim:      `/opt/e sim-engine --port 8001 --model m --context 4096 --slots 16 --kv-endpoint tcp://127.0.0.1:8002 --replay-endpoint tcp://127.0.0.1:8003 --extra`,
		engine.LlamaCpp: `/opt/e /d/serve.py --weights /w --model m --port 8001 --context 4096 --slots 16 --extra`,
	} {
		c, err := driver(t, family).Command(spec)
		if got := c.Path + " " + strings.Join(c.Args, " "); err != nil || got != want {
			t.Errorf("%s:\n%s, %v\n%s", family, got, err, want)
		}
		if _, err := driver(t, family).Command(engine.Spec{}); err == nil {
			t.Errorf("%s: an empty spec is a command", family)
		}
	}
}

func TestCleanBase(t *testing.T) {
	for raw, want := range map[string]string{
		"http://a:8000": "http://a:8000", "http://a:8000/": "http://a:8000", " https://h/v1/ ": "https://h", "https://h/openai/v1": "https://h/openai",
		"a:8000": "", "ftp://a": "", "http://u:p@a": "", "http://a?x=1": "", "": "", "http://": "",
		"http://a:65535": "http://a:65535", "http://a:99999": "", "http://a:65536": "", "http://a:0": "", "http://:8000": "", "http://a:": "",
		"http://[::1]:8000/v1": "http://[::1]:8000",
	} {
		if got, err := engine.CleanBase(raw); got != want || (err == nil) == (want == "") {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
}

// fake answers each path with a fixed body, and remembers what it was sent.
type fake struct {
	answers map[string]string
	seen    []string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.seen = append(f.seen, r.Method+" "+r.URL.Path)
	if a, ok := f.answers[r.URL.Path]; ok {
		_, _ = w.Write([]byte(a))
		return
	}
	http.Error(w, `{"error":"loading"}`, http.StatusServiceUnavailable)
}

func serve(t *testing.T, answers map[string]string) (*fake, *httptest.Server) {
	f := &fake{answers: answers}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return f, s
}

func TestReadyIsAGeneration(t *testing.T) {
	_, good := serve(t, map[string]string{"/v1/chat/completions": string(capture(t, "vllm/chat1.resp"))})
	_, loading := serve(t, map[string]string{"/health": "ok"})
	_, empty := serve(t, map[string]string{"/v1/chat/completions": `{"choices":[],"usage":{"completion_tokens":0}}`})
	for _, f := range engine.Families() {
		d := driver(t, f)
		if err := d.Ready(t.Context(), good.Client(), good.URL, "tiny"); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		for _, bad := range []*httptest.Server{loading, empty} {
			if err := d.Ready(t.Context(), bad.Client(), bad.URL, "tiny"); !fault.Is(err, fault.Upstream) {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
	good.Close()
	if err := driver(t, engine.VLLM).Ready(t.Context(), good.Client(), good.URL, "tiny"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestLoad(t *testing.T) {
	two := `vllm:num_requests_running{engine="0",model_name="a} b"} 2.0` + "\n" + `vllm:num_requests_running{engine="1"} 3.0 1700000000` + "\n" +
		"# vllm:num_requests_waiting 9\nvllm:num_requests_waiting{engine=\"1\"} 4\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.25\nvllm:num_requests_waiting NaN\nbad\nvllm:prefix_cache_hits_total"
	for _, c := range []struct {
		family  engine.Family
		metrics string
		slots   string
		want    engine.Load
	}{
		{engine.VLLM, string(capture(t, "vllm/metrics.txt")), "", engine.Load{PrefixHits: 3552, PrefixQueries: 4442}},
		{engine.Sim, two, "", engine.Load{Running: 5, Waiting: 4, KVUsage: 0.375, Ranks: []engine.RankLoad{{Running: 2, KVUsage: 0.5}, {Rank: 1, Running: 3, Waiting: 4, KVUsage: 0.25}}}},
		{engine.LlamaCpp, string(capture(t, "llamacpp/metrics.txt")), string(capture(t, "llamacpp/slots.json")), engine.Load{PrefixHits: 1317, PrefixQueries: 2003}},
		{engine.LlamaCpp, "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n", `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens":30},{"n_ctx":100,"n_prompt_tokens":70}]`,
			engine.Load{Running: 1, Waiting: 2, KVUsage: 0.15}},
		// Two attention groups; a process of the second repeats its group's numbers; series by priority are parts of the whole.
		{engine.SGLang, `sglang:num_running_reqs{dp_rank="0",priority="",tp_rank="0"} 3` + "\n" + `sglang:num_running_reqs{dp_rank="0",priority="-1",tp_rank="0"} 2` + "\n" +
			`sglang:num_running_reqs{dp_rank="1",priority="",tp_rank="4"} 4` + "\n" + `sglang:num_running_reqs{dp_rank="1",priority="",tp_rank="5"} 4` + "\n" +
			`sglang:num_queue_reqs{dp_rank="1",priority=""} 2` + "\n" + `sglang:token_usage{dp_rank="0",priority=""} 0.5` + "\n" + `sglang:token_usage{dp_rank="1",priority=""} 0.25` + "\n" +
			`sglang:cached_tokens_total{priority="0",cache_source="device"} 7` + "\n" + `sglang:cached_tokens_total{priority="1",cache_source="host"} 3` + "\n" + `sglang:prompt_tokens_total{is_streaming="true"} 40`,
			"", engine.Load{Running: 7, Waiting: 2, KVUsage: 0.375, PrefixHits: 10, PrefixQueries: 40, QueuedTokens: 900,
				Ranks: []engine.RankLoad{{Running: 3, KVUsage: 0.5, QueuedTokens: 400}, {Rank: 1, Running: 4, Waiting: 2, KVUsage: 0.25, QueuedTokens: 500}}}},
		{engine.TRTLLM, "trtllm_num_requests_running{model_name=\"x\"} 3\ntrtllm_num_requests_waiting 2\ntrtllm_kv_cache_utilization 0.75\ntrtllm_prompt_cached_tokens_total 5\ntrtllm_prompt_tokens_total 9\n",
			"", engine.Load{Running: 3, Waiting: 2, KVUsage: 0.75, PrefixHits: 5, PrefixQueries: 9}},
		{engine.TRTLLM, "trtllm:num_requests_running 1\n", "", engine.Load{Running: 1}},
	} {
		_, s := serve(t, map[string]string{"/metrics": c.metrics, "/prometheus/metrics": c.metrics, "/slots": c.slots,
			"/v1/loads": `{"loads":[{"dp_rank":0,"num_waiting_uncached_tokens":400},{"dp_rank":1,"num_waiting_uncached_tokens":500}]}`})
		got, err := driver(t, c.family).Load(t.Context(), s.Client(), s.URL)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.family, got, err, c.want)
		}
	}
	if _, err := driver(t, engine.OpenAI).Load(t.Context(), http.DefaultClient, "http://127.0.0.1:1"); !errors.Is(err, engine.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

func TestTokens(t *testing.T) {
	f, s := serve(t, map[string]string{"/v1/chat/completions/render": string(capture(t, "vllm/render.resp"))})
	body := []byte(`{"model":"tiny","messages":[{"role":"user","content":"hi there"}]}`)
	got, err := driver(t, engine.VLLM).Tokens(t.Context(), s.Client(), s.URL, body)
	if want := []uint32{0, 128803, 6366, 1031, 128804}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if ids, err := driver(t, engine.Sim).Tokens(t.Context(), nil, "", body); err != nil || len(ids) < 5 || len(f.seen) != 1 {
		t.Errorf("%v, %v, asked %v", ids, err, f.seen)
	}
	for _, f := range []engine.Family{engine.LlamaCpp, engine.OpenAI, engine.TRTLLM} {
		if _, err := driver(t, f).Tokens(t.Context(), nil, "", body); !errors.Is(err, engine.ErrUnsupported) || driver(t, f).Caps().Tokens {
			t.Errorf("%s: %v", f, err)
		}
	}
}
