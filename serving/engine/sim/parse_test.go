package sim

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/engine/tok"
)

// Whatever is asked, there is a fault to tell, or an answer whose tokens are the tokens of its text.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"use a tool"}],"tools":[{"function":{"name":"f","parameters":{"properties":{"a":{"type":"array","items":{"enum":["x"]}}}}}}],"stop":["."],"n":2}`,
		`{"messages":[{"role":"tool","content":null}],"reasoning_effort":"high","min_tokens":90,"max_tokens":100,"stop":"engine"}`,
		`{"prompt":[[1,2],[3]],"max_tokens":5,"sim":{"text":"a b","tokens":9}}`,
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	e, err := New(Config{Context: 512, Faults: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		q, err := e.parse(httptest.NewRequest(http.MethodPost, "/", nil), body, chat)
		if err != nil {
			var known *fault.Fault
			if !errors.As(err, &known) {
				t.Fatalf("%s: %v", body, err)
			}
			return
		}
		for _, ids := range q.prompts {
			s := e.write(q, ids, 0)
			if s.total < 1 {
				t.Fatalf("%s: an answer of %d tokens", body, s.total)
			}
			var text strings.Builder
			for i := range min(s.total, q.maxTokens) {
				if g := s.segment(i); g.part == content {
					text.WriteString(s.at(i).text)
				}
			}
			n := 0
			for i := range min(s.total, q.maxTokens) {
				if s.segment(i).part == content {
					n++
				}
			}
			if q.scripted == nil && tok.Count([]byte(text.String())) != n {
				t.Fatalf("%q has %d tokens, %d were generated", text.String(), tok.Count([]byte(text.String())), n)
			}
		}
	})
}

func TestCrashes(t *testing.T) {
	for f, want := range map[Faults]string{{Crash: true}: "", {CrashAfterTokens: 3}: "data:"} {
		e, err := New(Config{Faults: true})
		if err != nil {
			t.Fatal(err)
		}
		code := make(chan int, 1)
		e.exit = func(c int) { code <- c }
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); _ = e.Run(ctx) }()
		e.faults.put(f)
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions",
			strings.NewReader(`{"stream":true,"max_tokens":9,"messages":[{"role":"user","content":"x"}]}`)))
		if got := <-code; got != crashCode || !strings.HasPrefix(w.Body.String(), want) || want == "" && w.Body.Len() > 0 {
			t.Errorf("%+v: exit %d after %q", f, got, w.Body)
		}
		cancel()
		<-ran
	}
}

func TestASlowFirstTokenIsWaitedForOrLeft(t *testing.T) {
	e, err := New(Config{Faults: true})
	if err != nil {
		t.Fatal(err)
	}
	e.faults.put(Faults{SlowFirstMS: 3_600_000})
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`)).WithContext(ctx)
	cancel()
	e.Handler().ServeHTTP(httptest.NewRecorder(), r) // returns because the client has left
	if _, waiting, _, _ := e.sched.load(); waiting != 0 {
		t.Error("a request whose client left is queued")
	}
}
