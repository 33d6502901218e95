package gate_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
	"millrace/serving/protocol/streamtest"
)

const id = `"id":"chatcmpl-inner","object":"chat.completion.chunk","created":7,"model":"inner"`

// says is a chunk with text; n is the engine's running count, -1 = none.
func says(text string, n int) string {
	return fmt.Sprintf("data: {%s,\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]%s}\n\n", id, text, used(n, ""))
}

func used(n int, details string) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprintf(`,"usage":{"prompt_tokens":100,"total_tokens":%d,"completion_tokens":%d%s}`, 100+n, n, details)
}

func finish(reason string, n int) string {
	return fmt.Sprintf("data: {%s,\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":%q,\"stop_reason\":null}]%s}\n\n", id, reason, used(n, ""))
}

func role() string {
	return fmt.Sprintf("data: {%s,\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]%s}\n\n", id, used(0, ""))
}

func last(n int) string {
	return fmt.Sprintf("data: {%s,\"choices\":[]%s,\"system_fingerprint\":\"vllm\"}\n\n", id, used(n, `,"prompt_tokens_details":{"cached_tokens":64}`))
}

const done = "data: [DONE]\n\n"

// good is an answer of five tokens.
var good = role() + says("one", 1) + says(" two", 2) + says(" three", 3) + says(" four", 4) + says(" five", 5) + finish("stop", 5) + last(5) + done

const goodText = "one two three four five"

// full is what good costs: 36 computed and 64 cached prompt tokens, 5 generated, in nano-dollars (see gatetest.Prices).
const full = money.Nano(36 + 6 + 10) // 64 cached tokens cost 6.4, rounded with the rest

func request(members string) string {
	return `{"model":"acme/test","messages":[{"role":"user","content":"hello there"}]` + members + `}`
}

const (
	streamed      = `,"stream":true`
	streamedUsage = `,"stream":true,"stream_options":{"include_usage":true}`
)

// post sends a request and reads the answer to its end, however that comes.
func post(t *testing.T, s *gatetest.Stand, body string) (*http.Response, []byte, error) {
	t.Helper()
	answer, err := http.Post(s.URL, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer, text, err
}

func mustStream(t *testing.T, body []byte, withUsage bool) *streamtest.Answer {
	t.Helper()
	a, err := streamtest.Check(body, streamtest.Want{Usage: withUsage, Model: gatetest.ModelName})
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	return a
}

func TestAWholeStream(t *testing.T) {
	for _, members := range []string{streamed, streamedUsage} {
		e := gatetest.NewEngine(t, gatetest.Stream(good))
		s := gatetest.New(t, gatetest.Options{}, e)
		answer, body, err := post(t, s, request(members))
		if err != nil || answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" || answer.Header.Get("Cache-Control") != "no-cache" {
			t.Fatalf("%v %v %s", err, answer, body)
		}
		a := mustStream(t, body, members == streamedUsage)
		if a.Choices[0].Content != goodText || a.Choices[0].Finish != "stop" {
			t.Errorf("%+v", a)
		}
		if members == streamedUsage && (a.Usage.Prompt != 100 || a.Usage.Completion != 5 || a.Usage.Details.Cached != 64) {
			t.Errorf("usage %+v", a.Usage)
		}
		checkGood(t, s, e)
	}
}

func checkGood(t *testing.T, s *gatetest.Stand, e *gatetest.Engine) {
	t.Helper()
	ev := s.Event(t)
	if ev.Ending != usage.Complete || ev.Status != 200 || ev.Estimated || ev.Usage != (usage.Vector{usage.Input: 36, usage.Cached: 64, usage.Output: 5, usage.Requests: 1}) {
		t.Errorf("event %+v", ev)
	}
	if ev.Charge != full || s.Budgets.Settled() != full {
		t.Errorf("charged %d, settled %d, want %d", ev.Charge, s.Budgets.Settled(), full)
	}
	if err := ev.Validate(); err != nil || ev.FirstTokenMS == 0 || ev.EndedMS < ev.StartedMS || len(ev.Attempts) != 1 || ev.Attempts[0].Note != "" || ev.PriceVersion != s.Prices.Quoted.Version {
		t.Errorf("event %+v: %v", ev, err)
	}
	head, body := e.Last()
	if head.Get("Authorization") != "Bearer sk-up" || head.Get("Millrace-Attempt") != "" {
		t.Errorf("the engine got the header %v", head)
	}
	for _, want := range []string{`"model":"inner"`, `"stream":true`, `"continuous_usage_stats":true`, `"cache_salt":"salt-org_`} {
		if !strings.Contains(body, want) {
			t.Errorf("the engine got %s", body)
		}
	}
}

func TestAWholeAnswer(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	s := gatetest.New(t, gatetest.Options{}, e)
	answer, body, err := post(t, s, request(""))
	if err != nil || answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "application/json" || answer.ContentLength != int64(len(body)) {
		t.Fatalf("%v %v %s", err, answer, body)
	}
	a, err := streamtest.Whole(body, streamtest.Want{Model: gatetest.ModelName})
	if err != nil || a.Choices[0].Content != goodText || a.Choices[0].Finish != "stop" || a.Usage == nil || a.Usage.Details.Cached != 64 {
		t.Fatalf("%+v %v", a, err)
	}
	checkGood(t, s, e)
}

// However the engine's stream comes over the wire, the answer and the bill are the same.
func TestHoweverItComes(t *testing.T) {
	stream := role() + says("é解😀", 1) + says(strings.Repeat("wide ", 300_000), 2) + finish("stop", 2) + last(2) + done
	want := "é解😀" + strings.Repeat("wide ", 300_000)
	raw := func(parts ...string) gatetest.Script {
		return func(c net.Conn, _ int) bool { gatetest.Send(c, parts...); return false }
	}
	small := func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead)
		for text := stream; text != ""; { // cuts through characters and events alike
			n := min(len(text), 7)
			if len(text) > 5000 && len(text) < len(stream)-5000 {
				n = len(text) - 4000
			}
			gatetest.Send(c, gatetest.Chunk(text[:n]))
			text = text[n:]
		}
		gatetest.Send(c, "0\r\n\r\n")
		return true
	}
	const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
	for name, script := range map[string]gatetest.Script{
		"in one piece":         gatetest.Stream(stream),
		"in small pieces":      small,
		"until the end":        raw(head+"\r\n", stream),
		"with a length":        raw(head, fmt.Sprintf("Content-Length: %d\r\n\r\n", len(stream)), stream),
		"with CRLF":            gatetest.Stream(strings.ReplaceAll(stream, "\n", "\r\n")),
		"with comments":        gatetest.Stream(": hello\n\n" + strings.ReplaceAll(stream, "data: ", ": ping\n\nevent: x\nid: 1\ndata:")),
		"without the last end": gatetest.Stream(strings.TrimRight(stream, "\n")),
		"without an end mark":  gatetest.Stream(strings.TrimSuffix(stream, done)),
	} {
		t.Run(name, func(t *testing.T) {
			e := gatetest.NewEngine(t, script)
			s := gatetest.New(t, gatetest.Options{}, e)
			_, body, err := post(t, s, request(streamed))
			if err != nil {
				t.Fatal(err)
			}
			if a := mustStream(t, body, false); a.Choices[0].Content != want || a.Error != nil {
				t.Fatalf("%d bytes of text, error %v", len(a.Choices[0].Content), a.Error)
			}
			if ev := s.Event(t); ev.Ending != usage.Complete || ev.Usage != (usage.Vector{usage.Input: 36, usage.Cached: 64, usage.Output: 2, usage.Requests: 1}) {
				t.Errorf("%+v", ev)
			}
		})
	}
}

// One connection serves one request after another.
func TestConnectionsAreUsedAgain(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	s := gatetest.New(t, gatetest.Options{}, e)
	var first net.Addr
	e.Play(func(c net.Conn, n int) bool {
		if n == 1 {
			first = c.RemoteAddr()
		} else if c.RemoteAddr() != first {
			t.Error("another connection")
		}
		return gatetest.Stream(good)(c, n)
	})
	for range 5 {
		post(t, s, request(streamed))
		post(t, s, request(""))
	}
}

func TestWithoutMoney(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	s := gatetest.New(t, gatetest.Options{Cap: 1}, e)
	answer, body, _ := post(t, s, request(streamed))
	if answer.StatusCode != 402 || !bytes.Contains(body, []byte("insufficient_quota")) || e.Requests() != 0 || len(s.Log.Events()) != 0 {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}

func TestTheLogIsNotReady(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	s := gatetest.New(t, gatetest.Options{}, e)
	s.Log.SetReady(fault.New(fault.Unavailable, "Full.").WithRetryAfter(time.Second))
	if answer, body, _ := post(t, s, request("")); answer.StatusCode != 503 || e.Requests() != 0 {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}

// What a request took before a panic lets it in nowhere is given back: its place, its hold, its share of the key's limits.
func TestAPanicWhileARequestIsLetInLeavesNothing(t *testing.T) {
	s := gatetest.New(t, gatetest.Options{Direct: true}, gatetest.NewEngine(t, gatetest.Stream(good)))
	s.Caller.Concurrency = 1
	router := s.Gate.Router
	s.Gate.Router = nil // asked last
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = admit(t, s)
	}()
	s.Gate.Router = router
	ticket, err := admit(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := ticket.Serve(t.Context(), httptest.NewRecorder()); err != nil || s.Gate.Running() != 0 {
		t.Errorf("%v, %d run", err, s.Gate.Running())
	}
}

func admit(t *testing.T, s *gatetest.Stand) (*gate.Ticket, error) {
	t.Helper()
	chat, err := protocol.DecodeChat([]byte(request("")))
	if err != nil {
		t.Fatal(err)
	}
	return s.Gate.Admit(t.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: chat, Dialect: &gatetest.Dialect})
}
