package deepinfer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"millrace/serving/engine"
	"millrace/serving/engine/deepinfer"
	"millrace/serving/engine/sim"
)

// The test's program is the engine when it is started as one, with the contract's arguments.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "engine" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var c sim.Contract
	parser, err := kong.New(&c)
	if err == nil {
		_, err = parser.Parse(os.Args[2:])
	}
	if err == nil {
		err = c.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// running is an adapter and its engine, started by the driver's command line.
type running struct {
	t    *testing.T
	d    engine.Driver
	base string
	dir  string
	stop context.CancelFunc
	over chan struct{}
	err  error // once over
}

func start(t *testing.T, change func(*engine.Spec)) *running {
	t.Helper()
	d, err := engine.Lookup(engine.DeepInfer)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "di") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	spec := engine.Spec{Executable: os.Args[0] + " engine", Agent: "agent", Model: "flash", ModelPath: "/w", Port: port, DataDir: dir,
		Context: 4096, Slots: 8, Parallel: engine.Parallel{Data: 4, Expert: 4}, Speculative: &engine.Speculative{Method: "nextn", Draft: 3}, Extra: []string{"--speed", "20"}}
	if change != nil {
		change(&spec)
	}
	c, err := d.Command(spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{t: t, d: d, base: fmt.Sprintf("http://127.0.0.1:%d", port), dir: dir, stop: stop, over: make(chan struct{})}
	go func() {
		defer close(r.over)
		_, r.err = deepinfer.RunIfAsked(ctx, c.Args)
	}()
	t.Cleanup(func() { stop(); _ = r.ended() })
	return r
}

const patience = 30 * time.Second

// ended waits for the adapter's end.
func (r *running) ended() error {
	select {
	case <-r.over:
		return r.err
	case <-time.After(patience):
		r.t.Fatal("the adapter does not end")
		return nil
	}
}

func (r *running) ready() {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := r.d.Ready(r.t.Context(), http.DefaultClient, r.base, "flash")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal(err)
		}
	}
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	resp, err := http.Get(r.base + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func (r *running) stream(id string) io.ReadCloser {
	r.t.Helper()
	resp, err := http.Post(r.base+engine.ChatPath, "application/json", strings.NewReader(
		`{"model":"flash","request_id":"`+id+`","stream":true,"min_tokens":3000,"max_tokens":3000,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s", resp.Status)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 2000)); err != nil {
		r.t.Fatal(err)
	}
	return resp.Body
}

// The driver's command line starts the engine by the contract; it is proved, asked for its load by rank, and stopped.
func TestTheDriversCommandRunsAnEngine(t *testing.T) {
	r := start(t, nil)
	r.ready()
	if status, text := r.get(r.d.Alive()); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if l, err := r.d.Load(t.Context(), http.DefaultClient, r.base); err != nil || len(l.Ranks) != 4 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, text := r.get("/info"); !strings.Contains(text, `"ep_size":4`) {
		t.Error(text)
	}
	r.stop()
	if err := r.ended(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(r.base + "/health"); err == nil {
		t.Error("something still listens")
	}
}

// An engine with another EP size than was asked for is not alive: half of its memory would be missing, or of its speed.
func TestAnotherEPSizeIsNotAlive(t *testing.T) {
	r := start(t, func(s *engine.Spec) { s.Extra = append(s.Extra, "--ep", "2") })
	r.ready()
	if status, text := r.get(r.d.Alive()); status != http.StatusServiceUnavailable || !strings.Contains(text, "EP size of 2") {
		t.Errorf("%d %s", status, text)
	}
}

// An engine that dies takes the adapter with it: its supervisor sees one death.
func TestTheAdapterEndsWithItsEngine(t *testing.T) {
	r := start(t, func(s *engine.Spec) { s.Extra = append(s.Extra, "--faults") })
	r.ready()
	resp, err := r.overSocket().Post("http://engine/sim/faults", "application/json", strings.NewReader(`{"crash":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	_ = r.d.Ready(t.Context(), http.DefaultClient, r.base, "flash") // the request that it dies of
	if err := r.ended(); err == nil || !strings.Contains(err.Error(), "the engine is gone") {
		t.Errorf("%v", err)
	}
}

func (r *running) overSocket() *http.Client {
	var d net.Dialer
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", filepath.Join(r.dir, "engine.sock"))
	}}}
}

// Draining takes nothing new, lets what runs end, and ends the process.
func TestDrain(t *testing.T) {
	r := start(t, nil)
	r.ready()
	running := r.stream("aaaa")
	defer running.Close()
	for range 2 { // who says it again does not make the first one wait for its limit
		if err := r.d.Drain(t.Context(), http.DefaultClient, r.base, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.d.Ready(t.Context(), http.DefaultClient, r.base, "flash"); err == nil {
		t.Error("something new was taken")
	}
	if err := r.d.Cancel(t.Context(), http.DefaultClient, r.base, "aaaa"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(running)
	if err != nil || !strings.Contains(string(rest), `"finish_reason":"abort"`) {
		t.Errorf("%v …%s", err, rest[max(0, len(rest)-200):])
	}
	if err := r.ended(); err != nil {
		t.Error(err)
	}
}

// What the command line lacks is said before anything starts.
func TestArgumentsThatAreMissing(t *testing.T) {
	for _, args := range [][]string{{"--port", "1"}, {"--port", "1", "--model", "m", "--socket", strings.Repeat("x", 200), "--", "e"}, {"--port", "1", "--model", "m", "--socket", "/s"}} {
		if err := deepinfer.Run(t.Context(), args); err == nil {
			t.Errorf("%q is enough", args)
		}
	}
	if asked, _ := deepinfer.RunIfAsked(t.Context(), []string{"--hub", "x"}); asked {
		t.Error("an agent's arguments are an adapter's")
	}
	if err := deepinfer.Run(t.Context(), []string{"--port", "1", "--model", "m", "--socket", filepath.Join(t.TempDir(), "s"), "--", "/nowhere"}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
