package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// sglangRank is what the metrics say of one data-parallel rank.
type sglangRank struct{ running, waiting, usage float64 }

// sglangLoad reads the sglang:* metrics. A rank's processes all tell of the same queue, and series by priority are parts of
// one without, so the largest counts; counters are by priority only, so they add up. How many tokens wait, the metrics do not
// say: /v1/loads does.
func sglangLoad(ctx context.Context, c *http.Client, base string) (Load, error) {
	text, err := call(ctx, c, http.MethodGet, base+"/metrics", nil, maxMetricBytes)
	if err != nil {
		return Load{}, err
	}
	var l Load
	ranks := map[string]*sglangRank{}
	rank := func(labels []byte) *sglangRank {
		r := ranks[label(labels, "dp_rank")]
		if r == nil {
			r = &sglangRank{}
			ranks[label(labels, "dp_rank")] = r
		}
		return r
	}
	eachMetric(text, func(name, labels []byte, v float64) {
		switch string(name) {
		case "sglang:num_running_reqs":
			r := rank(labels)
			r.running = max(r.running, v)
		case "sglang:num_queue_reqs":
			r := rank(labels)
			r.waiting = max(r.waiting, v)
		case "sglang:token_usage":
			r := rank(labels)
			r.usage = max(r.usage, v)
		case "sglang:cached_tokens_total": // of several sources
			l.PrefixHits += int64(v)
		case "sglang:prompt_tokens_total": // streamed and not
			l.PrefixQueries += int64(v)
		}
	})
	for _, r := range ranks {
		l.Running += int(r.running)
		l.Waiting += int(r.waiting)
		l.KVUsage += r.usage / float64(len(ranks))
	}
	l.QueuedTokens = sglangQueued(ctx, c, base)
	return l, nil
}

// sglangQueued is the prompt tokens that wait and are not cached, 0 when the server does not say.
func sglangQueued(ctx context.Context, c *http.Client, base string) (tokens int64) {
	answer, err := call(ctx, c, http.MethodGet, base+"/v1/loads?include=core", nil, maxAnswerBytes)
	if err != nil {
		return 0
	}
	var got struct {
		Loads []struct {
			Waiting int64 `json:"num_waiting_uncached_tokens"`
		} `json:"loads"`
	}
	if json.Unmarshal(answer, &got) != nil {
		return 0
	}
	for _, l := range got.Loads {
		tokens += max(l.Waiting, 0)
	}
	return tokens
}

// trtllmLoad reads the trtllm_* metrics, which releases before 1.1 called trtllm:*. They lie beside /metrics, which tells
// each iteration once and to one reader.
func trtllmLoad(ctx context.Context, c *http.Client, base string) (Load, error) {
	text, err := call(ctx, c, http.MethodGet, base+"/prometheus/metrics", nil, maxMetricBytes)
	if err != nil {
		return Load{}, err
	}
	var l Load
	eachMetric(text, func(name, _ []byte, v float64) {
		short, ours := strings.CutPrefix(strings.Replace(string(name), ":", "_", 1), "trtllm_")
		if !ours {
			return
		}
		switch short {
		case "num_requests_running":
			l.Running += int(v)
		case "num_requests_waiting":
			l.Waiting += int(v)
		case "kv_cache_utilization":
			l.KVUsage = min(max(l.KVUsage, v), 1)
		case "prompt_cached_tokens_total":
			l.PrefixHits += int64(v)
		case "prompt_tokens_total":
			l.PrefixQueries += int64(v)
		}
	})
	return l, nil
}
