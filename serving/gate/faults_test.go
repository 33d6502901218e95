package gate_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
	"millrace/serving/protocol/streamtest"
)

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
			gatetest.SendTaken(c, gatetest.StreamHead, gatetest.Chunk(half)) // a reset throws away what was not read
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
				var asked atomic.Bool
				script := func(c net.Conn, n int) bool {
					if !asked.Swap(true) {
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

// mad is an answer with a mistake of ours in it.
type mad struct {
	protocol.Answer
	after int // events
}

func (m *mad) Add(dst, data []byte) ([]byte, protocol.Step, error) {
	if m.after--; m.after < 0 {
		panic("a mistake")
	}
	return m.Answer.Add(dst, data)
}

// A mistake of ours costs the customer nothing and leaves nothing behind: the stand checks holds and bookings at the end.
func TestAPanicEndsTheRequest(t *testing.T) {
	for after, status := range map[int]int{0: http.StatusInternalServerError, 2: http.StatusOK} {
		read := make(chan struct{})
		s := gatetest.New(t, gatetest.Options{}, gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
			gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(role()+says("one", 1)))
			if after > 0 {
				<-read
			}
			gatetest.Send(c, gatetest.Chunk(says(" two", 2)))
			gatetest.Gone(c)
			return false
		}))
		dialect := gatetest.Dialect
		dialect.Answer = func(stream bool, p protocol.AnswerParams) protocol.Answer {
			return &mad{gatetest.Dialect.Answer(stream, p), after}
		}
		s.Dialect = &dialect
		answer, err := http.Post(s.URL, "application/json", strings.NewReader(request(streamed)))
		if err != nil {
			t.Fatal(err)
		}
		close(read) // the head came, and with it the first events
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != status || (err != nil) != (status == http.StatusOK) || bytes.Contains(body, []byte("mistake")) {
			t.Errorf("after %d events: %d, %v, %s", after, answer.StatusCode, err, body)
		}
		if ev := s.Event(t); ev.Ending != usage.FailedUnbilled || ev.Charge != 0 || ev.Status != status {
			t.Errorf("after %d events: %+v", after, ev)
		}
	}
}
