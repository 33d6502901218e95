package sim_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"millrace/serving/engine/sim"
)

// hammer sends body from several goroutines, and reads the answers whole.
func hammer(b *testing.B, url, body string) {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer c.CloseIdleConnections()
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := c.Post(url+chatPath, "application/json", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
}

func BenchmarkSim(b *testing.B) {
	e, err := sim.New(sim.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Serve(ctx, ln) })
	defer wg.Wait()
	defer cancel()
	url := "http://" + ln.Addr().String()
	b.Run("whole", func(b *testing.B) { hammer(b, url, ask("How is the mill?", `,"max_tokens":20}`)) })
	b.Run("stream100", func(b *testing.B) {
		hammer(b, url, ask("How is the mill?", `,"max_tokens":100,"ignore_eos":true`+withUsage))
	})
}

func BenchmarkRaw(b *testing.B) {
	for name, cfg := range map[string]sim.RawConfig{"bare": {}, "http": {HTTP: true}} {
		url := startRaw(b, cfg)
		b.Run(name+"/whole", func(b *testing.B) { hammer(b, url, ask("How is the mill?", `,"max_tokens":20}`)) })
		b.Run(name+"/stream100", func(b *testing.B) { hammer(b, url, ask("How is the mill?", withUsage)) })
	}
}
