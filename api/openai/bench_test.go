package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/api/anthropic"
	"millrace/api/inference"
	"millrace/api/openai"
	"millrace/internal/clock"
	"millrace/serving/engine/sim"
	"millrace/serving/gate/gatetest"
)

// upstreamURL starts the cheapest possible engine.
func upstreamURL(b testing.TB, cfg sim.RawConfig) string {
	b.Helper()
	raw, err := sim.NewRaw(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = raw.Serve(ctx, ln) }()
	b.Cleanup(func() { cancel(); <-ended })
	return "http://" + ln.Addr().String()
}

// BenchmarkRelay is a request's cost with everything but the log, the budgets' database and the rating: requests a second
// and CPU microseconds of the whole process (client and engine included) beside a client that asks the engine itself.
func BenchmarkRelay(b *testing.B) {
	for _, kind := range []struct {
		name, members string
	}{{"stream", `,"stream":true,"max_tokens":100`}, {"whole", `,"max_tokens":8`}} {
		target := upstreamURL(b, sim.RawConfig{Tokens: 100})
		body := []byte(`{"model":"acme/test","messages":[{"role":"user","content":"` + strings.Repeat("word ", 60) + `"}]` + kind.members + `}`)
		b.Run(kind.name+"/direct", func(b *testing.B) { load(b, target, "/v1/chat/completions", body) })
		s := gatetest.New(b, gatetest.Options{Direct: true}, &gatetest.Engine{URL: target})
		e := echo.New()
		(&openai.API{Gate: s.Gate, Door: inference.Door{Auth: keyring{s.Caller}, Clock: clock.System}, Models: s.Models, Prices: pricelist{}}).Register(e)
		url := gatetest.Serve(b, e)
		b.Run(kind.name+"/gate", func(b *testing.B) { load(b, url, "/v1/chat/completions", body) })
	}
}

// BenchmarkDialects is the gate's cost of the same exchange in each dialect.
func BenchmarkDialects(b *testing.B) {
	target := upstreamURL(b, sim.RawConfig{Tokens: 100})
	s := gatetest.New(b, gatetest.Options{Direct: true}, &gatetest.Engine{URL: target})
	e := echo.New()
	door := inference.Door{Auth: keyring{s.Caller}, Clock: clock.System}
	(&openai.API{Gate: s.Gate, Door: door, Models: s.Models, Prices: pricelist{}, Responses: kept(nil, s)}).Register(e)
	(&anthropic.API{Gate: s.Gate, Door: door, Models: s.Models, Sealer: nil}).Register(e)
	url := gatetest.Serve(b, e)
	text := strings.Repeat("word ", 60)
	turn := `"messages":[{"role":"user","content":"` + text + `"}],"max_tokens":`
	for _, kind := range []struct{ name, members, tokens string }{{"stream", `,"stream":true`, "100"}, {"whole", "", "8"}} {
		for _, d := range []struct{ name, path, body string }{
			{"chat", "/v1/chat/completions", turn + kind.tokens}, {"messages", "/v1/messages", turn + kind.tokens},
			{"responses", "/v1/responses", `"store":false,"input":"` + text + `","max_output_tokens":` + kind.tokens},
		} {
			body := []byte(`{"model":"acme/test",` + d.body + kind.members + `}`)
			b.Run(kind.name+"/"+d.name, func(b *testing.B) { load(b, url, d.path, body) })
		}
	}
}

// load sends b.N requests on 16 bare connections and reads the answers.
func load(b *testing.B, target, path string, body []byte) {
	u, err := url.Parse(target)
	if err != nil {
		b.Fatal(err)
	}
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer mk_good\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	const clients = 16
	work := make(chan struct{}, clients)
	done := make(chan error, clients)
	for range clients {
		go func() {
			c, err := net.Dial("tcp", u.Host)
			if err == nil {
				defer c.Close()
				r := bufio.NewReaderSize(c, 32<<10)
				for range work {
					if _, err = c.Write(request); err == nil {
						err = readAnswer(r)
					}
					if err != nil {
						break
					}
				}
			}
			for range work {
			}
			done <- err
		}()
	}
	runtime.GC()
	before := cpu()
	start := time.Now()
	b.ResetTimer()
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	for range clients {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/1e3/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "req/s")
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readAnswer reads one answer to its end as cheaply as can be.
func readAnswer(r *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			rest, _ := r.Peek(r.Buffered())
			return fmt.Errorf("%s %s", line, rest)
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if _, err := fmt.Sscan(string(v), &length); err != nil {
				return err
			}
		}
		if len(line) <= 2 {
			break
		}
	}
	if length >= 0 {
		_, err := r.Discard(length)
		return err
	}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		size := 0
		for _, c := range bytes.TrimRight(line, "\r\n") {
			switch {
			case c <= '9':
				size = size<<4 | int(c-'0')
			default:
				size = size<<4 | int(c|0x20-'a'+10)
			}
		}
		if _, err := r.Discard(size + 2); err != nil {
			return err
		}
		if size == 0 {
			return nil
		}
	}
}
