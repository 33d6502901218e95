package gate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
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

// Cut anywhere, a stream pays for at most what the client got, and the client always learns that it was cut.
func TestCutAtEveryByte(t *testing.T) {
	e := gatetest.NewEngine(t, nil)
	for n := range len(good) {
		e.Play(gatetest.Cut(good, n))
		s := gatetest.New(t, gatetest.Options{}, e)
		answer, body, err := post(t, s, request(streamed))
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		ev := s.Event(t)
		text := delivered(body)
		tokens := int64(0)
		if text != "" {
			tokens = int64(strings.Count(text, " ") + 1)
		}
		switch {
		case answer.StatusCode == http.StatusBadGateway:
			if ev.Ending != usage.FailedUnbilled || ev.Charge != 0 || ev.Usage.Tokens() != 0 || text != "" || len(ev.Attempts) == 0 {
				t.Fatalf("cut at %d: %+v\n%s", n, ev, body)
			}
		case ev.Ending == usage.Complete: // all but some of what follows the finish
			if a := mustStream(t, body, false); a.Choices[0].Content != goodText || a.Error != nil || ev.Usage.Generated() != 5 || ev.Usage.Prompt() != 100 {
				t.Fatalf("cut at %d: %+v\n%s", n, ev, body)
			}
		default:
			a := mustStream(t, body, false)
			if a.Error == nil || a.Choices[0].Finish != "" || ev.Ending != usage.EngineFailed {
				t.Fatalf("cut at %d: %+v\n%s", n, ev, body)
			}
			if ev.Usage.Generated() != tokens || ev.Usage.Prompt() != 100 || !ev.Estimated {
				t.Fatalf("cut at %d: %d tokens were delivered, usage %v", n, tokens, ev.Usage)
			}
		}
		if strings.Contains(string(body), "inner") || strings.Contains(string(body), "127.0.0.1") {
			t.Fatalf("cut at %d: leak: %s", n, body)
		}
	}
}

// delivered is the text of a stream, read leniently.
func delivered(body []byte) (text string) {
	for _, line := range bytes.Split(body, []byte("\n")) {
		if _, rest, ok := bytes.Cut(line, []byte(`"delta":{"content":"`)); ok {
			word, _, _ := bytes.Cut(rest, []byte(`"`))
			text += string(word)
		}
	}
	return text
}

// A whole answer that the engine breaks is an error, and nothing is paid.
func TestCutWholeAnswers(t *testing.T) {
	e := gatetest.NewEngine(t, nil)
	for n := 0; n < len(good); n += 7 {
		e.Play(gatetest.Cut(good, n))
		s := gatetest.New(t, gatetest.Options{}, e)
		answer, body, err := post(t, s, request(""))
		if err != nil {
			t.Fatal(err)
		}
		ev := s.Event(t)
		if answer.StatusCode == 200 {
			a, err := streamtest.Whole(body, streamtest.Want{})
			if err != nil || a.Choices[0].Content != goodText || ev.Ending != usage.Complete {
				t.Fatalf("cut at %d: %v %s %+v", n, err, body, ev)
			}
		} else if answer.StatusCode != 502 || ev.Ending != usage.FailedUnbilled || ev.Charge != 0 || !bytes.HasPrefix(body, []byte(`{"error":`)) {
			t.Fatalf("cut at %d: %d %s %+v", n, answer.StatusCode, body, ev)
		}
	}
}

// Whatever the engine does in mid-stream, the client gets an error frame and pays what was delivered.
func TestFaultsInMidStream(t *testing.T) {
	half := role() + says("one", 1) + says(" two", 2)
	for _, tt := range []struct {
		name   string
		script gatetest.Script
	}{
		{"an error frame", gatetest.Stream(half + "data: {\"error\":{\"message\":\"CUDA died at 10.0.0.7\",\"code\":500}}\n\n" + done)},
		{"an error frame with a client's status", gatetest.Stream(half + "data: {\"error\":{\"message\":\"context length\",\"code\":400}}\n\n" + done)},
		{"garbage", gatetest.Stream(half + "data: {\"choi\n\n" + says(" three", 3) + done)},
		{"HTML", gatetest.Stream(half + "data: <html>\n\n")},
		{"no finish", gatetest.Stream(half + done)},
		{"an abort", gatetest.Stream(half + finish("abort", 2) + done)},
		{"a reset", func(c net.Conn, _ int) bool {
			gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(half))
			time.Sleep(20 * time.Millisecond) // let it be read before the reset throws it away
			_ = c.(*net.TCPConn).SetLinger(0)
			return false
		}},
		{"broken framing", func(c net.Conn, _ int) bool {
			gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(half), "zz\r\n")
			return false
		}},
		{"a stall", func(c net.Conn, _ int) bool {
			gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(half))
			gatetest.Gone(c)
			return false
		}},
	} {
		for _, policy := range []string{"delivered", "nothing"} {
			t.Run(tt.name+"/"+policy, func(t *testing.T) {
				s := gatetest.New(t, gatetest.Options{Times: gate.Times{Idle: 300 * time.Millisecond}}, gatetest.NewEngine(t, tt.script))
				s.Caller.FailurePolicy = policy
				_, body, err := post(t, s, request(streamed))
				if err != nil {
					t.Fatal(err)
				}
				a := mustStream(t, body, false)
				if a.Error == nil || a.Choices[0].Content != "one two" || a.Choices[0].Finish != "" {
					t.Errorf("%s", body)
				}
				ev := s.Event(t)
				want := usage.Vector{usage.Input: 100, usage.Output: 2, usage.Requests: 1}
				if policy == "nothing" {
					want = usage.Vector{}
				}
				if ev.Ending != usage.EngineFailed || ev.Usage != want || ev.Status != 200 || len(ev.Attempts) != 1 || ev.Attempts[0].Note == "" {
					t.Errorf("%+v", ev)
				}
				if bytes.Contains(body, []byte("CUDA")) || bytes.Contains(body, []byte("10.0.0.7")) || bytes.Contains(body, []byte("context")) {
					t.Errorf("leak: %s", body)
				}
			})
		}
	}
}

func TestRetriesBeforeTheFirstToken(t *testing.T) {
	for _, tt := range []struct {
		name string
		bad  gatetest.Script
		note string
	}{
		{"500", gatetest.Refuse(500, `{"error":"x"}`), "status 500"},
		{"503", gatetest.Refuse(503, ``, "Retry-After: 7\r\n"), "status 503"},
		{"401", gatetest.Refuse(401, `{"error":{"message":"bad key sk-up"}}`), "status 401"},
		{"closed at once", func(net.Conn, int) bool { return false }, "engine error"},
		{"closed after the head", gatetest.Cut(good, 0), "broken stream"},
		{"closed after the role", gatetest.Cut(good, len(role())), "broken stream"},
		{"an error frame first", gatetest.Stream("data: {\"error\":{\"message\":\"x\",\"code\":503}}\n\n"), "status 503"},
		{"not a stream", gatetest.Refuse(200, `{"choices":[]}`), "status 200"},
		{"not HTTP", func(c net.Conn, _ int) bool { gatetest.Send(c, "SSH-2.0-x\r\n\r\n"); return false }, "engine error"},
	} {
		for _, members := range []string{streamed, ""} {
			t.Run(tt.name+members, func(t *testing.T) {
				// Whichever unit is asked first does it badly, the next well.
				first := true
				script := func(c net.Conn, n int) bool {
					if first {
						first = false
						return tt.bad(c, n)
					}
					return gatetest.Stream(good)(c, n)
				}
				s := gatetest.New(t, gatetest.Options{}, gatetest.NewEngine(t, script), gatetest.NewEngine(t, script))
				answer, body, err := post(t, s, request(members))
				if err != nil || answer.StatusCode != 200 || !bytes.Contains(body, []byte("one")) {
					t.Fatalf("%v %d %s", err, answer.StatusCode, body)
				}
				ev := s.Event(t)
				if ev.Ending != usage.Complete || len(ev.Attempts) != 2 || ev.Attempts[0].Note != tt.note || ev.Attempts[1].Note != "" ||
					ev.Attempts[0].ID == ev.Attempts[1].ID || ev.Attempts[0].Unit == ev.Attempts[1].Unit || ev.Usage.Generated() != 5 {
					t.Errorf("%+v", ev)
				}
			})
		}
	}
}

// What cannot be helped becomes one proper error, once, and costs nothing.
func TestRefusals(t *testing.T) {
	down, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down.Close()
	for _, tt := range []struct {
		name     string
		script   gatetest.Script
		status   int
		code     string
		requests int
	}{
		{"a context that is too long", gatetest.Refuse(400, `{"error":{"message":"max_tokens=99999 cannot be greater than max_model_len=4096 (parameter=max_tokens)","type":"BadRequestError","param":"max_tokens","code":400}}`), 400, "context_length_exceeded", 1},
		{"llama.cpp's words for it", gatetest.Refuse(400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`), 400, "context_length_exceeded", 1},
		{"another 400", gatetest.Refuse(400, `{"error":{"message":"temperature: /home/x/engine.py line 3","param":"temperature"}}`), 400, "", 1},
		{"422", gatetest.Refuse(422, `{"detail":[{"loc":["body"],"msg":"inner"}]}`), 400, "", 1},
		{"413", gatetest.Refuse(413, ``), 413, "", 1},
		{"429 everywhere", gatetest.Refuse(429, `{}`, "Retry-After: 3\r\n"), 503, "", 2},
		{"500 everywhere", gatetest.Refuse(500, `{"error":"/home/x inner 10.1.1.1"}`), 502, "", 2},
		{"404 everywhere", gatetest.Refuse(404, `{"error":{"message":"The model inner does not exist"}}`), 502, "", 2},
		{"an error frame with 400", gatetest.Stream("data: {\"error\":{\"message\":\"maximum context length is 5\",\"code\":400}}\n\n" + done), 400, "context_length_exceeded", 1},
		{"an empty stream", gatetest.Stream(""), 502, "", 2},
		{"only the end", gatetest.Stream(done), 502, "", 2},
		{"silence", func(c net.Conn, _ int) bool { gatetest.Gone(c); return false }, 504, "", 1},
		{"silence after the head", func(c net.Conn, _ int) bool {
			gatetest.Send(c, gatetest.StreamHead)
			gatetest.Gone(c)
			return false
		}, 504, "", 1},
	} {
		for _, members := range []string{streamed, ""} {
			t.Run(tt.name+members, func(t *testing.T) {
				one, two := gatetest.NewEngine(t, tt.script), gatetest.NewEngine(t, tt.script)
				s := gatetest.New(t, gatetest.Options{Times: gate.Times{FirstToken: 200 * time.Millisecond}}, one, two)
				answer, body, err := post(t, s, request(members+`,"temperature":1`))
				if err != nil || answer.StatusCode != tt.status || !bytes.Contains(body, []byte(`"code":"`+tt.code+`"`)) {
					t.Fatalf("%v %d %s", err, answer.StatusCode, body)
				}
				for _, leak := range []string{"inner", "/home", "10.1.1.1", "sk-up", "max_model_len"} {
					if bytes.Contains(body, []byte(leak)) {
						t.Errorf("%q leaks: %s", leak, body)
					}
				}
				if n := one.Requests() + two.Requests(); n != tt.requests {
					t.Errorf("%d requests to engines, want %d", n, tt.requests)
				}
				ev := s.Event(t)
				if ev.Ending != usage.FailedUnbilled || ev.Status != tt.status || ev.Charge != 0 || ev.Usage != (usage.Vector{}) || len(ev.Attempts) != tt.requests {
					t.Errorf("%+v", ev)
				}
			})
		}
	}
}

// An engine that does not listen is passed over; when none does, the client is told.
func TestEnginesThatAreDown(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	down := &gatetest.Engine{URL: "http://127.0.0.1:1"}
	s := gatetest.New(t, gatetest.Options{}, down, e, down)
	for range 6 {
		if answer, body, _ := post(t, s, request(streamed)); answer.StatusCode != 200 {
			t.Fatalf("%s", body)
		}
	}
	s = gatetest.New(t, gatetest.Options{}, down)
	if answer, body, _ := post(t, s, request(streamed)); answer.StatusCode != 502 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
}

// A pooled connection that the engine had closed costs nobody anything, not even the unit's good name.
func TestStaleConnections(t *testing.T) {
	e := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
		gatetest.Stream(good)(c, n)
		return false // closed without a word
	})
	s := gatetest.New(t, gatetest.Options{}, e)
	for i := range 10 {
		if answer, body, _ := post(t, s, request(streamed)); answer.StatusCode != 200 {
			t.Fatalf("request %d: %d %s", i, answer.StatusCode, body)
		}
	}
}

// The client goes: the engine learns it at once, and what was delivered is paid.
func TestTheClientLeaves(t *testing.T) {
	left := make(chan struct{})
	half := role() + says("one", 1) + says(" two", 2)
	e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(half))
		gatetest.Gone(c)
		close(left)
		return false
	})
	s := gatetest.New(t, gatetest.Options{}, e)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader(request(streamed)))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for n := 0; !bytes.Contains(buf[:n], []byte("two")); {
		m, err := answer.Body.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	cancel()
	answer.Body.Close()
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Fatal("the engine goes on for nobody")
	}
	ev := s.Event(t)
	if ev.Ending != usage.ClientLeft || ev.Usage != (usage.Vector{usage.Input: 100, usage.Output: 2, usage.Requests: 1}) || !ev.Estimated || ev.Status != 200 {
		t.Errorf("%+v", ev)
	}
}

// A client that leaves before anything was generated pays nothing; one that waits for a whole answer pays what was
// generated until it left.
func TestTheClientLeavesEarly(t *testing.T) {
	for _, tt := range []struct {
		name, members, sent string
		want                usage.Vector
	}{
		{"before the first token", streamed, role(), usage.Vector{}},
		{"before the first token of a whole answer", "", role(), usage.Vector{}},
		{"in a whole answer", "", role() + says("one", 1) + says(" two", 2), usage.Vector{usage.Input: 100, usage.Output: 2, usage.Requests: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent, left := make(chan struct{}), make(chan struct{})
			e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
				gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(tt.sent))
				close(sent)
				gatetest.Gone(c)
				close(left)
				return false
			})
			s := gatetest.New(t, gatetest.Options{}, e)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-sent
				time.Sleep(50 * time.Millisecond) // the gate reads what was sent
				cancel()
			}()
			req, _ := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader(request(tt.members)))
			if answer, err := http.DefaultClient.Do(req); err == nil {
				answer.Body.Close()
				t.Fatal("an answer came")
			}
			select {
			case <-left:
			case <-time.After(5 * time.Second):
				t.Fatal("the engine goes on for nobody")
			}
			if ev := s.Event(t); ev.Ending != usage.ClientLeft || ev.Usage != tt.want || ev.Status != 499 {
				t.Errorf("%+v", ev)
			}
		})
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
