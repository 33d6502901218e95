package relay

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"millrace/agents/wire"
	"millrace/internal/ids"
)

// The data plane against the engine alone: the difference is what an agent costs, without TLS.
func BenchmarkStream100Chunks(b *testing.B) {
	line := []byte(chunk("77"))
	engine := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 100 {
			_, _ = w.Write(line)
			_ = http.NewResponseController(w).Flush()
		}
	}
	b.Run("direct", func(b *testing.B) {
		bench := newBench(b, engine)
		run(b, "http://"+bench.place.address+"/v1/chat/completions")
	})
	b.Run("agent", func(b *testing.B) {
		bench := newBench(b, engine)
		run(b, bench.URL+wire.DataPrefix+bench.unit.String()+"/v1/chat/completions")
	})
}

func BenchmarkWhole(b *testing.B) {
	answer := bytes.Repeat([]byte("x"), 2000)
	engine := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(answer)
	}
	b.Run("direct", func(b *testing.B) {
		run(b, "http://"+newBench(b, engine).place.address+"/v1/chat/completions")
	})
	b.Run("agent", func(b *testing.B) {
		bench := newBench(b, engine)
		run(b, bench.URL+wire.DataPrefix+bench.unit.String()+"/v1/chat/completions")
	})
}

func run(b *testing.B, url string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	body := bytes.Repeat([]byte("y"), 1000)
	b.ReportAllocs()
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, _ := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
			r.Header.Set(wire.HeaderAttempt, ids.New().String())
			resp, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Error(err)
			}
			_ = resp.Body.Close()
		}
	})
}
