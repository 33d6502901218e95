package sim

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// stats counts what metrics show. Its fields are written by the scheduler and read by scrapes.
type stats struct {
	queries, hits      atomic.Int64 // prompt tokens looked up in the cache, and found
	prompt, generated  atomic.Int64 // tokens
	finished, aborted  atomic.Int64 // answers
	preempted, steps   atomic.Int64
	firsts, firstNanos atomic.Int64 // first tokens, and the time to them
	rejected           atomic.Int64

	transfers, transferFailed   atomic.Int64 // caches given or taken, and those that did not come
	recomputed, expired, deaths atomic.Int64
}

func (s *stats) firstToken(after time.Duration) {
	s.firsts.Add(1)
	s.firstNanos.Add(int64(after))
}

// serveMetrics writes the metrics that dashboards and routers read, in the engine's names; what it has no name for is left
// out.
func (e *Engine) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	s := &e.stats
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	labels := e.labels(0)
	last := ""
	one := func(name, kind, help, more string, v any) {
		if name = e.voice.metric(name); name == "" {
			return
		}
		if name != last {
			_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		}
		last = name
		_, _ = fmt.Fprintf(w, "%s{%s%s} %v\n", name, labels, more, v)
	}
	for _, r := range e.active() {
		running, queued, queuedTokens, usage := r.sched.load()
		labels = e.labels(r.n)
		one("num_requests_running", "gauge", "Requests being computed (simulated).", "", running)
		one("num_requests_waiting", "gauge", "Requests waiting (simulated).", "", queued)
		one("num_queued_tokens", "gauge", "Prompt tokens of waiting requests (simulated; vLLM has no such metric).", "", queuedTokens)
		one("kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", "", usage)
	}
	labels = e.labels(0)
	one("prefix_cache_queries_total", "counter", "Prompt tokens looked up.", "", s.queries.Load())
	one("prefix_cache_hits_total", "counter", "Prompt tokens found.", "", s.hits.Load())
	one("prompt_tokens_total", "counter", "Prompt tokens of answers begun.", "", s.prompt.Load())
	one("generation_tokens_total", "counter", "Tokens generated.", "", s.generated.Load())
	one("num_preemptions_total", "counter", "Requests sent back to the queue.", "", s.preempted.Load())
	one("iteration_total", "counter", "Steps computed.", "", s.steps.Load())
	one("request_success_total", "counter", "Answers ended.", `,finished_reason="stop"`, s.finished.Load())
	one("request_success_total", "counter", "Answers ended.", `,finished_reason="abort"`, s.aborted.Load())
	one("admission_rejections_total", "counter", "Requests refused.", `,reason="max_num_queued_reqs"`, s.rejected.Load())
	h := e.Handovers()
	for _, m := range []struct {
		name string
		v    int64
	}{{"transfers_total", h.Transfers}, {"transfers_failed_total", h.Failed}, {"prompts_recomputed_total", h.Recomputed}, {"leases_expired_total", h.Expired},
		{"names_in_use", int64(h.Names)}, {"blocks_lent", int64(h.Blocks)}} {
		_, _ = fmt.Fprintf(w, "sim:handover_%s{%s} %d\n", m.name, labels, m.v)
	}
	if name := e.voice.metric("time_to_first_token_seconds"); name != "" {
		_, _ = fmt.Fprintf(w, "# TYPE %[1]s summary\n%[1]s_sum{%[2]s} %[3]g\n%[1]s_count{%[2]s} %[4]d\n",
			name, labels, time.Duration(s.firstNanos.Load()).Seconds(), s.firsts.Load())
	}
	one("cache_config_info", "gauge", "The cache's size.", fmt.Sprintf(`,block_size="%d",num_gpu_blocks="%d",enable_prefix_caching="True"`, e.cfg.BlockSize, e.cfg.Blocks), 1)
}

// labels name a rank, as vLLM and SGLang do.
func (e *Engine) labels(rank int) string {
	name := "engine"
	if _, sglang := e.voice.(sglangVoice); sglang {
		name = "dp_rank"
	}
	return fmt.Sprintf(`%s="%d",model_name=%q`, name, rank, e.cfg.Model)
}
