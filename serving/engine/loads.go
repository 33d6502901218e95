package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// sglangLoad reads the sglang:* metrics. A rank's processes all tell of the same queue, and series by priority are parts of
// one without, so the largest counts; counters are by priority only, so they add up. How many tokens wait, the metrics do not
// say: /v1/loads does.
func sglangLoad(ctx context.Context, c *http.Client, base string) (Load, error) {
	text, err := call(ctx, c, http.MethodGet, base+"/metrics", nil, maxMetricBytes)
	if err != nil {
		return Load{}, err
	}
	var l Load
	ranks := rankLoads{}
	eachMetric(text, func(name, labels []byte, v float64) {
		switch string(name) {
		case "sglang:num_running_reqs":
			r := ranks.of(label(labels, "dp_rank"))
			r.Running = max(r.Running, int(v))
		case "sglang:num_queue_reqs":
			r := ranks.of(label(labels, "dp_rank"))
			r.Waiting = max(r.Waiting, int(v))
		case "sglang:token_usage":
			r := ranks.of(label(labels, "dp_rank"))
			r.KVUsage = max(r.KVUsage, min(v, 1))
		case "sglang:cached_tokens_total": // of several sources
			l.PrefixHits += int64(v)
		case "sglang:prompt_tokens_total": // streamed and not
			l.PrefixQueries += int64(v)
		}
	})
	sglangQueued(ctx, c, base, ranks)
	ranks.join(&l)
	return l, nil
}

// sglangQueued adds the prompt tokens that wait and are not cached, where the server says.
func sglangQueued(ctx context.Context, c *http.Client, base string, ranks rankLoads) {
	answer, err := call(ctx, c, http.MethodGet, base+"/v1/loads?include=core", nil, maxAnswerBytes)
	if err != nil {
		return
	}
	var got struct {
		Loads []struct {
			Rank    int   `json:"dp_rank"`
			Waiting int64 `json:"num_waiting_uncached_tokens"`
		} `json:"loads"`
	}
	if json.Unmarshal(answer, &got) != nil {
		return
	}
	for _, l := range got.Loads {
		name := strconv.Itoa(l.Rank)
		if ranks[name] == nil && len(got.Loads) == 1 && len(ranks) == 1 {
			name = onlyKey(ranks) // an engine without ranks has no label for its one
		}
		ranks.of(name).QueuedTokens += max(l.Waiting, 0)
	}
}

func onlyKey(r rankLoads) (key string) {
	for key = range r {
	}
	return key
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
