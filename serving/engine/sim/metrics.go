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
}

func (s *stats) firstToken(after time.Duration) {
	s.firsts.Add(1)
	s.firstNanos.Add(int64(after))
}

// serveMetrics writes the vllm:* metrics that dashboards and routers read, in vLLM's names.
func (e *Engine) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	running, queued, queuedTokens, usage := e.sched.load()
	s := &e.stats
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	label := fmt.Sprintf(`{engine="0",model_name=%q}`, e.cfg.Model)
	one := func(name, kind, help string, v any) {
		_, _ = fmt.Fprintf(w, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\nvllm:%s%s %v\n", name, help, name, kind, name, label, v)
	}
	one("num_requests_running", "gauge", "Requests being computed (simulated).", running)
	one("num_requests_waiting", "gauge", "Requests waiting (simulated).", queued)
	one("num_queued_tokens", "gauge", "Prompt tokens of waiting requests (simulated; vLLM has no such metric).", queuedTokens)
	one("kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", usage)
	one("prefix_cache_queries_total", "counter", "Prompt tokens looked up.", s.queries.Load())
	one("prefix_cache_hits_total", "counter", "Prompt tokens found.", s.hits.Load())
	one("prompt_tokens_total", "counter", "Prompt tokens of answers begun.", s.prompt.Load())
	one("generation_tokens_total", "counter", "Tokens generated.", s.generated.Load())
	one("num_preemptions_total", "counter", "Requests sent back to the queue.", s.preempted.Load())
	one("iteration_total", "counter", "Steps computed.", s.steps.Load())
	_, _ = fmt.Fprintf(w, "# TYPE vllm:request_success_total counter\n")
	_, _ = fmt.Fprintf(w, "vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=%[1]q} %[2]d\nvllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name=%[1]q} %[3]d\n",
		e.cfg.Model, s.finished.Load(), s.aborted.Load())
	_, _ = fmt.Fprintf(w, "# TYPE vllm:admission_rejections_total counter\nvllm:admission_rejections_total{model_name=%q,reason=\"max_num_queued_reqs\"} %d\n",
		e.cfg.Model, s.rejected.Load())
	_, _ = fmt.Fprintf(w, "# TYPE vllm:time_to_first_token_seconds summary\nvllm:time_to_first_token_seconds_sum%s %g\nvllm:time_to_first_token_seconds_count%s %d\n",
		label, time.Duration(s.firstNanos.Load()).Seconds(), label, s.firsts.Load())
	_, _ = fmt.Fprintf(w, "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%d\",enable_prefix_caching=\"True\",engine=\"0\"} 1\n",
		e.cfg.BlockSize, e.cfg.Blocks)
}
