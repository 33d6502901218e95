package engine

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
)

// vllmLoad reads the vllm:* metrics, which the simulated engine has too. Several data-parallel engines behind one
// address are told apart by their label and added up; their cache usage is the mean.
func vllmLoad(ctx context.Context, c *http.Client, base string) (Load, error) {
	text, err := call(ctx, c, http.MethodGet, base+"/metrics", nil, maxMetricBytes)
	if err != nil {
		return Load{}, err
	}
	var l Load
	ranks := rankLoads{}
	eachMetric(text, func(name, labels []byte, v float64) {
		switch string(name) {
		case "vllm:num_requests_running":
			ranks.of(label(labels, "engine")).Running += int(v)
		case "vllm:num_requests_waiting":
			ranks.of(label(labels, "engine")).Waiting += int(v)
		case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc": // the second is the name of older releases
			ranks.of(label(labels, "engine")).KVUsage = min(v, 1)
		case "vllm:num_queued_tokens":
			ranks.of(label(labels, "engine")).QueuedTokens += int64(v)
		case "vllm:prefix_cache_hits_total":
			l.PrefixHits += int64(v)
		case "vllm:prefix_cache_queries_total":
			l.PrefixQueries += int64(v)
		}
	})
	ranks.join(&l)
	return l, nil
}

// eachMetric calls f for every sample of a Prometheus text, with the name, and the labels between their braces. Lines it
// cannot read are none.
func eachMetric(text []byte, f func(name, labels []byte, v float64)) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		end := bytes.IndexAny(line, "{ \t")
		if end < 0 {
			continue
		}
		name, rest, labels := line[:end], line[end:], []byte(nil)
		if rest[0] == '{' { // label values may hold spaces and escaped quotes, but the last brace closes the labels
			closing := bytes.LastIndexByte(rest, '}')
			labels, rest = rest[1:max(closing, 1)], rest[closing+1:]
		}
		fields := bytes.Fields(rest) // value and perhaps a timestamp
		if len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(string(fields[0]), 64); err == nil && v == v && v >= 0 && v < 1e18 {
			f(name, labels, v)
		}
	}
}

// label is the value of one label, "" when there is none.
func label(labels []byte, name string) string {
	_, after, found := bytes.Cut(append([]byte(","), labels...), []byte(","+name+`="`))
	if !found {
		return ""
	}
	value, _, _ := bytes.Cut(after, []byte(`"`))
	return string(value)
}
