package engine_test

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/engine"
)

//go:embed testdata
var captures embed.FS

func capture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := captures.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// marked gives the data lines of a captured stream that carry the driver's usage mark.
func marked(d engine.Driver, stream []byte) (lines [][]byte) {
	for line := range bytes.Lines(stream) {
		if bytes.Contains(line, d.UsageMark()) {
			lines = append(lines, bytes.TrimSpace(line))
		}
	}
	return lines
}

func vector(input, cached, output, reasoning int64) usage.Vector {
	v := usage.Vector{}
	v[usage.Input], v[usage.Cached], v[usage.Output], v[usage.Reasoning], v[usage.Requests] = input, cached, output, reasoning, 1
	return v
}

// vLLM counts cached tokens in the prompt, llama.cpp beside it: the same request costs the same.
func TestInclusiveAndExclusiveShapesCostTheSame(t *testing.T) {
	inclusive, exclusive := driver(t, engine.VLLM), driver(t, engine.LlamaCpp)
	prices := usage.Prices{usage.Input: 150_000, usage.Cached: 15_001, usage.Output: 600_000}
	for i := range int64(1000) {
		computed, cached, generated := i*7919%5000+1, i*104729%9000, i*31%700+1
		a, err := inclusive.Usage(fmt.Appendf(nil, `{"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`, computed+cached, generated, cached))
		b, err2 := exclusive.Usage(fmt.Appendf(nil, `{"timings":{"cache_n":%d,"prompt_n":%d,"predicted_n":%d}}`, cached, computed, generated))
		if err != nil || err2 != nil || a.Vector != b.Vector {
			t.Fatalf("%d + %d cached: %v, %v; %v, %v", computed, cached, a.Vector, err, b.Vector, err2)
		}
		costA, _ := prices.Cost(a.Vector)
		costB, _ := prices.Cost(b.Vector)
		if want := prices[usage.Input]*money.Pico(computed) + prices[usage.Cached]*money.Pico(cached) + prices[usage.Output]*money.Pico(generated); costA != want || costB != want {
			t.Fatalf("%d + %d cached costs %d and %d, want %d", computed, cached, costA, costB, want)
		}
	}
	for _, absurd := range []string{`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":6}}}`,
		`{"usage":{"prompt_tokens":-5,"completion_tokens":1}}`, `{"usage":{"prompt_tokens":5,"completion_tokens":1000000000000}}`} {
		if r, err := inclusive.Usage([]byte(absurd)); err == nil {
			t.Errorf("%s was taken for %v", absurd, r.Vector)
		}
	}
}

func TestUsageOfCapturedStreams(t *testing.T) {
	for _, c := range []struct {
		file   string
		family engine.Family
		lines  int
		first  usage.Vector
		known  bool // of the first
		last   usage.Vector
	}{
		{"vllm/chat3-stream.resp", engine.VLLM, 1, vector(13, 672, 16, 0), true, vector(13, 672, 16, 0)},
		{"vllm/chat4-stream-contusage.resp", engine.VLLM, 4, vector(685, 0, 0, 0), false, vector(13, 672, 6, 0)},
		{"vllm/reason-tool.sse", engine.VLLM, 1, vector(30, 32, 69, 0), true, vector(30, 32, 69, 0)},
		{"vllm/chat3-stream.resp", engine.OpenAI, 1, vector(13, 672, 16, 0), true, vector(13, 672, 16, 0)},
		{"llamacpp/timings.sse", engine.LlamaCpp, 5, vector(5, 3, 1, 0), true, vector(5, 3, 4, 0)},
		{"llamacpp/last.sse", engine.LlamaCpp, 1, vector(1, 667, 48, 0), true, vector(1, 667, 48, 0)},
	} {
		d := driver(t, c.family)
		lines := marked(d, capture(t, c.file))
		if len(lines) != c.lines {
			t.Errorf("%s: %d lines with usage, want %d", c.file, len(lines), c.lines)
			continue
		}
		first, err1 := d.Usage(lines[0])
		last, err2 := d.Usage(bytes.TrimPrefix(lines[len(lines)-1], []byte("data: ")))
		if err1 != nil || err2 != nil || first.Vector != c.first || last.Vector != c.last || first.CachedKnown != c.known || !last.CachedKnown {
			t.Errorf("%s: first %+v %v, last %+v %v", c.file, first, err1, last, err2)
		}
		if !json.Valid(last.Raw) || last.Raw[0] != '{' {
			t.Errorf("%s: raw %s", c.file, last.Raw)
		}
	}
}

func TestUsageMakesClassesDisjoint(t *testing.T) {
	d := driver(t, engine.VLLM)
	got, err := d.Usage([]byte(`{"usage":{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":40,"cache_write_tokens":10,"multimodal_tokens":80,"audio_tokens":5},"completion_tokens_details":{"reasoning_tokens":20}}}`))
	want := usage.Vector{usage.Cached: 40, usage.CacheWrite: 10, usage.Image: 50, usage.Output: 30, usage.Reasoning: 20, usage.Requests: 1}
	if err != nil || got.Vector != want || got.Vector.Prompt() != 100 || got.Vector.Generated() != 50 {
		t.Errorf("%v, %v", got.Vector, err)
	}
}

func TestImpossibleUsageIsAnError(t *testing.T) {
	for _, chunk := range []string{
		`{"usage":{"prompt_tokens":-1,"completion_tokens":1}}`,
		`{"usage":{"prompt_tokens":1,"completion_tokens":-1}}`,
		`{"usage":{"prompt_tokens":1,"completion_tokens":99999999}}`,
		`{"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":1}}`,
		`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":6}}}`,
		`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":-6}}}`,
		`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"multimodal_tokens":-6}}}`,
		`{"usage":{"prompt_tokens":5,"completion_tokens":1,"completion_tokens_details":{"reasoning_tokens":2}}}`,
		`{"usage":{"prompt_tokens":"5","completion_tokens":1}}`,
		`{"usage":{"completion_tokens":1}}`,
		`{"usage":{}}`,
		`{"timings":{"cache_n":-1,"prompt_n":1,"predicted_n":1}}`,
		`{"timings":{"cache_n":9223372036854775807,"prompt_n":1,"predicted_n":1}}`,
		`{"timings":{"cache_n":1,"prompt_n":1}}`,
	} {
		if got, err := driver(t, engine.LlamaCpp).Usage([]byte(chunk)); err == nil {
			t.Errorf("%s: %+v", chunk, got.Vector)
		}
	}
	for _, chunk := range []string{`{"choices":[{"delta":{"content":"\"usage\":{"}}]}`, `{"usage":null}`, `{"x":{"usage":{"prompt_tokens":1,"completion_tokens":1}}}`, `[DONE]`, ``} {
		if _, err := driver(t, engine.VLLM).Usage([]byte(chunk)); !errors.Is(err, engine.ErrNoUsage) {
			t.Errorf("%s: %v", chunk, err)
		}
	}
}

func FuzzUsage(f *testing.F) {
	for _, file := range []string{"vllm/chat4-stream-contusage.resp", "llamacpp/timings.sse"} {
		for line := range bytes.Lines(capture(f, file)) {
			f.Add(bytes.TrimSpace(line))
		}
	}
	f.Fuzz(func(t *testing.T, chunk []byte) {
		for _, family := range engine.Families() {
			got, err := driver(t, family).Usage(chunk)
			if err != nil {
				continue
			}
			if err := got.Vector.Validate(); err != nil || got.Vector[usage.Requests] != 1 || len(got.Raw) > usage.MaxRawBytes {
				t.Fatalf("%s: %v %v", chunk, got.Vector, err)
			}
		}
	})
}

func BenchmarkUsage(b *testing.B) {
	d := driver(b, engine.VLLM)
	lines := marked(d, capture(b, "vllm/chat4-stream-contusage.resp"))
	last := lines[len(lines)-1]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Usage(last); err != nil {
			b.Fatal(err)
		}
	}
}

// SGLang tells reasoning beside the details in one release, in them in another, and no details where it was not asked for them.
func TestSGLangsUsage(t *testing.T) {
	d := driver(t, engine.SGLang)
	for chunk, want := range map[string]usage.Vector{
		`{"usage":{"prompt_tokens":9,"total_tokens":14,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"reasoning_tokens":2}}`:                                  vector(5, 4, 3, 2),
		`{"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"reasoning_tokens":2,"completion_tokens_details":{"reasoning_tokens":2}}}`: vector(5, 4, 3, 2),
		`{"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":0,"video_tokens":3},"reasoning_tokens":0,"completion_tokens_details":null}}`:  vector(9, 0, 5, 0),
		`{"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":null,"reasoning_tokens":null}}`:                                                                vector(9, 0, 5, 0),
	} {
		got, err := d.Usage([]byte(chunk))
		if err != nil || got.Vector != want || got.CachedKnown == bytes.Contains([]byte(chunk), []byte(`"prompt_tokens_details":null`)) {
			t.Errorf("%s: %+v, %v", chunk, got, err)
		}
	}
	if _, err := d.Usage([]byte(`{"usage":{"prompt_tokens":9,"completion_tokens":5,"reasoning_tokens":6}}`)); err == nil {
		t.Error("more reasoning than there was")
	}
}
