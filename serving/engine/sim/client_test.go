package sim_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/serving/engine"
	"millrace/serving/engine/sim"
)

const patience = 20 * time.Second

// server is a running engine as its clients see it.
type server struct {
	t   *testing.T
	url string
	drv engine.Driver

	engine *sim.Engine
	stop   func()
}

func start(t *testing.T, cfg sim.Config) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Port == 0 {
		cfg.Port = ln.Addr().(*net.TCPAddr).Port
	}
	e, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	h := httptest.NewUnstartedServer(e.Handler())
	_ = h.Listener.Close()
	h.Listener = ln
	h.Start()
	s := &server{t: t, url: h.URL, engine: e}
	if s.drv, err = engine.Lookup(engine.Sim); err != nil {
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() { cancel(); wg.Wait(); h.Close() })
	t.Cleanup(s.stop)
	return s
}

func (s *server) post(path, body string) (int, string) {
	s.t.Helper()
	resp, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get(sim.Header) != "true" {
		s.t.Errorf("%s does not say that it is simulated", path)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// chunk is a chunk of a stream as a client decodes it.
type chunk struct {
	ID, Object, Model string
	Created           int64
	Fingerprint       string `json:"system_fingerprint"`
	Choices           []struct {
		Index int
		Text  *string
		Delta struct {
			Role, Content, Reasoning *string
			ToolCalls                []struct {
				Index    int
				ID, Type *string
				Function struct{ Name, Arguments *string }
			} `json:"tool_calls"`
		}
		Finish *string `json:"finish_reason"`
		Stop   *string `json:"stop_reason"`
	}
	Usage    json.RawMessage
	Transfer json.RawMessage `json:"kv_transfer_params"`
	Error    json.RawMessage
}

// said is a stream put together.
type said struct {
	chunks    []chunk
	lines     []string // data lines
	content   map[int]string
	reasoning string
	tools     []string // name(arguments)
	finish    map[int]string
	stop      string
	last      engine.Report // of the last chunk with usage
	broken    error
}

// stream asks and reads to the end. It checks what must hold for every stream.
func (s *server) stream(path, body string) said {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return said{broken: err}
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || !strings.HasPrefix(ct, "text/event-stream") {
		b, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("%s: %d %s %s", body, resp.StatusCode, ct, b)
	}
	got := said{content: map[int]string{}, finish: map[int]string{}}
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if err != io.EOF {
				got.broken = err
			}
			break
		}
		if line = strings.TrimSpace(line); line != "" {
			got.lines = append(got.lines, line)
		}
	}
	s.read(&got)
	return got
}

func (s *server) read(got *said) {
	s.t.Helper()
	for _, line := range got.lines {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			s.t.Errorf("a line that is no data: %q", line)
		}
		if data == "[DONE]" {
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			continue // a fault's garbage: tests that expect none count the chunks
		}
		got.chunks = append(got.chunks, c)
		if bytes.Contains([]byte(line), s.drv.UsageMark()) {
			if r, err := s.drv.Usage([]byte(line)); err == nil {
				got.last = r
			}
		}
		for _, ch := range c.Choices {
			got.take(ch.Index, &c)
		}
	}
}

func (g *said) take(i int, c *chunk) {
	ch := c.Choices[0]
	for _, p := range []*string{ch.Text, ch.Delta.Content} {
		if p != nil {
			g.content[i] += *p
		}
	}
	if ch.Delta.Reasoning != nil {
		g.reasoning += *ch.Delta.Reasoning
	}
	for _, call := range ch.Delta.ToolCalls {
		if call.Function.Name != nil {
			g.tools = append(g.tools, *call.Function.Name+" ")
		}
		if call.Function.Arguments != nil {
			g.tools[call.Index] += *call.Function.Arguments
		}
	}
	if ch.Finish != nil {
		g.finish[i] += *ch.Finish
	}
	if ch.Stop != nil {
		g.stop = *ch.Stop
	}
}
