package relay

import (
	"context"
	"strings"
	"testing"

	"millrace/agents/host/journal"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"pgregory.net/rapid"
)

// What engines send, cut from captures: a stream of chunks of which the last with usage counts.
var streams = map[engine.Family]string{
	engine.VLLM: `data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":685,"total_tokens":685,"completion_tokens":0,"completion_tokens_details":null},"prompt_text":null}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"\"usage\":{\"prompt_tokens\":9}"}}],"usage":{"prompt_tokens":685,"total_tokens":686,"completion_tokens":1,"completion_tokens_details":null}}

data: {"id":"c","choices":[],"usage":{"prompt_tokens":685,"total_tokens":691,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":672,"created_cache_tokens":0}},"system_fingerprint":"x"}

data: [DONE]

`,
	engine.LlamaCpp: `data: {"choices":[{"index":0,"delta":{"content":"town"}}],"timings":{"cache_n":667,"prompt_n":1,"prompt_ms":92.402,"predicted_n":1,"predicted_ms":0.001}}

data: {"choices":[],"usage":{"completion_tokens":48,"prompt_tokens":668,"total_tokens":716,"prompt_tokens_details":{"cached_tokens":667}},"timings":{"cache_n":667,"prompt_n":1,"prompt_ms":102.079,"predicted_n":48,"predicted_per_second":1.2756}}

data: [DONE]

`,
}

func openJournal(t testing.TB) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.TempDir(), clock.System, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// shipped gives every ended record.
func shipped(t testing.TB, j *journal.Journal) map[ids.ID]wire.Attempt {
	t.Helper()
	got := map[ids.ID]wire.Attempt{}
	err := j.Flush(context.Background(), func(_ context.Context, batch []wire.Attempt) error {
		for _, a := range batch {
			got[a.ID] = a
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// However the bytes are cut, the meter ends where the engine's driver reads the last usage.
func TestTheMeterAgreesWithTheDriver(t *testing.T) {
	j := openJournal(t)
	streams[engine.Sim] = streams[engine.VLLM]
	for family, text := range streams {
		driver, err := engine.Lookup(family)
		if err != nil {
			t.Fatal(err)
		}
		var want usage.Vector
		for line := range strings.SplitSeq(text, "\n") {
			if strings.Contains(line, string(driver.UsageMark())) {
				report, err := driver.Usage([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				want = report.Vector
			}
		}
		rapid.Check(t, func(t *rapid.T) {
			id := ids.New()
			rec, err := j.Begin(id, ids.New(), wire.KindServe)
			if err != nil {
				t.Fatal(err)
			}
			m := meter{mark: driver.UsageMark(), record: rec}
			for rest := []byte(text); len(rest) > 0; {
				n := rapid.IntRange(1, min(len(rest), 400)).Draw(t, "read")
				m.scan(append([]byte(nil), rest[:n]...))
				rest = rest[n:]
			}
			m.handedOver()
			rec.End(wire.EndComplete)
			var a wire.Attempt
			_ = j.Flush(context.Background(), func(_ context.Context, b []wire.Attempt) error { a = b[0]; return nil })
			if a.Prompt != want.Prompt() || a.Cached != want[usage.Cached] || a.Generated != want.Generated() || a.HandedOver != a.Generated {
				t.Fatalf("%s: counted %+v, the driver says %v", family, a, want)
			}
		})
	}
}

func FuzzMeter(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s), 7)
	}
	f.Add([]byte(`"usage":{"usage":{"completion_tokens":99999999999999999999`), 3)
	j, err := journal.Open(f.TempDir(), clock.System, quiet)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		rec, err := j.Begin(ids.New(), ids.New(), wire.KindServe)
		if err != nil {
			t.Fatal(err)
		}
		defer rec.End(wire.EndComplete)
		m := meter{mark: []byte(`"usage":{`), record: rec}
		for step = max(1, step%100); len(data) > 0; {
			n := min(step, len(data))
			m.scan(data[:n])
			if len(m.tail) > 2*carryBytes {
				t.Fatalf("the tail grew to %d bytes", len(m.tail))
			}
			data = data[n:]
		}
	})
}

func BenchmarkMeterPerChunk(b *testing.B) {
	rec, err := openJournal(b).Begin(ids.New(), ids.New(), wire.KindServe)
	if err != nil {
		b.Fatal(err)
	}
	m := meter{mark: []byte(`"usage":{`), record: rec}
	chunk := []byte(`data: {"id":"chatcmpl-b73082719abdd0bf","object":"chat.completion.chunk","created":1796043044,"model":"tiny","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":{"prompt_tokens":685,"total_tokens":691,"completion_tokens":6}}` + "\n\n")
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		m.scan(chunk)
		m.handedOver()
	}
}
