package gate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol/streamtest"
)

// long is a stream of n tokens, per in each chunk.
func long(n, per int) string {
	var b strings.Builder
	b.WriteString(role())
	for i := per; i <= n; i += per {
		b.WriteString(says(strings.Repeat(" w", per), i))
	}
	return b.String() + finish("stop", n) + last(n) + done
}

// A long answer is held in slices. When the money ends, the stream ends with an error and pays for what was delivered,
// never more than there was.
func TestTheCapIsReached(t *testing.T) {
	for _, per := range []int{1, 7, 100} {
		e := gatetest.NewEngine(t, gatetest.Stream(long(7000, per)))
		for _, tokens := range []int64{1100, 2000, 4096, 5000, 6500} {
			// Prompt (400 bytes of bound and more) and so many output tokens.
			s := gatetest.New(t, gatetest.Options{Cap: 700 + money.Nano(2*tokens)}, e)
			_, body, err := post(t, s, request(streamed))
			if err != nil {
				t.Fatal(err)
			}
			a := mustStream(t, body, false)
			ev := s.Event(t)
			got := int64(strings.Count(a.Choices[0].Content, " w"))
			if a.Error == nil || a.Error.Code != "insufficient_quota" || ev.Ending != usage.CapReached || ev.Usage.Generated() != got {
				t.Fatalf("%d tokens of credit: got %d, %+v, error %+v", tokens, got, ev, a.Error)
			}
			if got < tokens-int64(per) || ev.Charge > s.Budgets.Cap {
				t.Errorf("%d tokens of credit in chunks of %d: got %d for %d of %d", tokens, per, got, ev.Charge, s.Budgets.Cap)
			}
		}
		s := gatetest.New(t, gatetest.Options{Cap: 20000}, e)
		_, body, _ := post(t, s, request(streamed))
		if a := mustStream(t, body, false); a.Error != nil || s.Event(t).Ending != usage.Complete {
			t.Errorf("with enough credit: %+v", a.Error)
		}
	}
}

// When a hold cannot be extended for another reason than money, the client is not told that its money is gone.
func TestHoldsThatCannotBeExtended(t *testing.T) {
	s := gatetest.New(t, gatetest.Options{}, gatetest.NewEngine(t, gatetest.Stream(long(2000, 1))))
	s.Budgets.Break(fault.New(fault.Unavailable, "The database is away."))
	_, body, _ := post(t, s, request(streamed))
	a := mustStream(t, body, false)
	if ev := s.Event(t); a.Error == nil || a.Error.Code == "insufficient_quota" || ev.Ending != usage.CapReached || ev.Usage.Generated() != 1024 {
		t.Errorf("%+v, %+v", a.Error, ev)
	}
}

// A whole answer is given as far as the money went.
func TestTheCapEndsAWholeAnswer(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(long(7000, 1)))
	s := gatetest.New(t, gatetest.Options{Cap: 700 + 2*3000}, e)
	answer, body, _ := post(t, s, request(""))
	a, err := streamtest.Whole(body, streamtest.Want{})
	ev := s.Event(t)
	if err != nil || answer.StatusCode != 200 || a.Choices[0].Finish != "length" || answer.Header.Get("Millrace-Warning") == "" {
		t.Fatalf("%v %+v", err, answer)
	}
	got := int64(strings.Count(a.Choices[0].Content, " w"))
	// The chunk for which there was no money is in the answer and free.
	if ev.Ending != usage.CapReached || ev.Usage.Generated() != got-1 || got < 2990 || a.Usage.Completion != got-1 {
		t.Errorf("%d tokens, %+v", got, ev)
	}
}

// A cap worth ten full holds: two hundred at once, ten are served, the rest is refused, nothing is overspent.
func TestTenOfTwoHundred(t *testing.T) {
	gate := make(chan struct{})
	e := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
		<-gate
		return gatetest.Stream(long(100, 1))(c, n)
	})
	probe := gatetest.New(t, gatetest.Options{Direct: true}, e)
	body := request(streamed + `,"max_tokens":100`)
	hold := 200 + money.Nano(engine.PromptBound([]byte(body), probe.Model.Context))
	s := gatetest.New(t, gatetest.Options{Cap: 10 * hold}, e)
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			answer, err := http.Post(s.URL, "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			mu.Lock()
			if statuses[answer.StatusCode]++; answer.StatusCode == 402 && statuses[402] == 190 {
				close(gate) // everybody has been judged
			}
			mu.Unlock()
			_, _ = io.Copy(io.Discard, answer.Body)
		})
	}
	wg.Wait()
	if statuses[200] != 10 || statuses[402] != 190 {
		t.Fatalf("%v", statuses)
	}
}

// Engines' usage as it should not be.
func TestStrangeUsage(t *testing.T) {
	text := func(s string) string { return says(s, -1) }
	end := func(u string) string {
		return fmt.Sprintf("data: {%s,\"choices\":[],\"usage\":%s}\n\n", id, u)
	}
	body := text("one") + text(" two") + finish("stop", -1)
	for _, tt := range []struct {
		name       string
		stream     string
		want       usage.Vector
		impossible bool
		estimated  bool
	}{
		{"none", body + done, usage.Vector{usage.Input: 4, usage.Output: 2, usage.Requests: 1}, false, true},
		{"null", body + end(`null`) + done, usage.Vector{usage.Input: 4, usage.Output: 2, usage.Requests: 1}, false, true},
		{"twice", body + end(`{"prompt_tokens":5,"completion_tokens":9}`) + end(`{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}`) + done,
			usage.Vector{usage.Input: 10, usage.Output: 2, usage.Requests: 1}, false, false},
		{"with reasoning", body + end(`{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}`) + done,
			usage.Vector{usage.Input: 6, usage.Cached: 4, usage.Output: 1, usage.Reasoning: 1, usage.Requests: 1}, false, false},
		{"negative", body + end(`{"prompt_tokens":-5,"completion_tokens":2}`) + done, usage.Vector{}, true, false},
		{"billions", body + end(`{"prompt_tokens":5,"completion_tokens":2000000000000}`) + done, usage.Vector{}, true, false},
		{"beyond numbers", body + end(`{"prompt_tokens":5,"completion_tokens":1e400}`) + done, usage.Vector{}, true, false},
		{"words", body + end(`{"prompt_tokens":"many","completion_tokens":2}`) + done, usage.Vector{}, true, false},
		{"more cached than there is", body + end(`{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":6}}`) + done, usage.Vector{}, true, false},
		{"far more than was asked for", body + end(`{"prompt_tokens":5,"completion_tokens":5000}`) + done, usage.Vector{}, true, false},
	} {
		for _, members := range []string{streamed, ""} {
			t.Run(tt.name+members, func(t *testing.T) {
				s := gatetest.New(t, gatetest.Options{}, gatetest.NewEngine(t, gatetest.Stream(tt.stream)))
				answer, body, err := post(t, s, request(members+`,"max_tokens":50`))
				if err != nil || answer.StatusCode != 200 || !bytes.Contains(body, []byte("one")) {
					t.Fatalf("%v %d %s", err, answer.StatusCode, body)
				}
				ev := s.Event(t)
				if tt.impossible {
					if ev.Validate() == nil || ev.Doubt == "" || ev.Charge != 0 || len(ev.Raw) == 0 || !json.Valid(ev.Raw) || s.Budgets.Settled() != 0 {
						t.Fatalf("%+v", ev)
					}
				} else if ev.Usage != tt.want || ev.Estimated != tt.estimated || ev.Validate() != nil {
					t.Fatalf("%+v, want %v", ev, tt.want)
				}
			})
		}
	}
}

// Several choices: one count for all, as the simulated engine has it, or one for each, as vLLM has it.
func TestChoicesAreCounted(t *testing.T) {
	chunk := func(choice, n int) string {
		return fmt.Sprintf("data: {%s,\"choices\":[{\"index\":%d,\"delta\":{\"content\":\" w\"},\"finish_reason\":null}]%s}\n\n", id, choice, used(n, ""))
	}
	for name, stream := range map[string]string{
		"each": chunk(0, 1) + chunk(1, 1) + chunk(0, 2) + chunk(1, 2) + chunk(1, 3),
		"all":  chunk(0, 1) + chunk(1, 2) + chunk(0, 3) + chunk(1, 4) + chunk(1, 5),
	} {
		e := gatetest.NewEngine(t, gatetest.Stream(stream))
		s := gatetest.New(t, gatetest.Options{}, e)
		post(t, s, request(streamed+`,"n":2`))
		if ev := s.Event(t); ev.Usage.Generated() != 5 || ev.Ending != usage.EngineFailed {
			t.Errorf("%s: %+v", name, ev)
		}
	}
}

// The last byte waits for the log. When it does not acknowledge, the answer is cut and cannot be taken for whole.
func TestTheLastByteWaits(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	for _, members := range []string{streamed, ""} {
		s := gatetest.New(t, gatetest.Options{Times: gate.Times{Ack: time.Minute}}, e)
		s.Log.Stick(true)
		answer, err := http.Post(s.URL, "application/json", strings.NewReader(request(members)))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		buf := make([]byte, 4096)
		for !bytes.Contains(got, []byte("stop")) {
			n, err := answer.Body.Read(buf)
			if err != nil {
				t.Fatalf("%q: %v", got, err)
			}
			got = append(got, buf[:n]...)
		}
		for len(s.Log.Events()) == 0 {
			time.Sleep(time.Millisecond)
		}
		if bytes.Contains(got, []byte("DONE")) || json.Valid(got) {
			t.Errorf("before the acknowledgement: %q", got)
		}
		s.Log.Stick(false)
		rest, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if got = append(got, rest...); err != nil || !bytes.HasSuffix(got, []byte(done)) && !json.Valid(got) {
			t.Errorf("after it: %q, %v", got, err)
		}

		s = gatetest.New(t, gatetest.Options{Times: gate.Times{Ack: 30 * time.Millisecond}}, e)
		s.Log.Stick(true)
		_, cut, err := post(t, s, request(members))
		if err == nil || bytes.Contains(cut, []byte("DONE")) || json.Valid(cut) {
			t.Errorf("without one: %q, %v", cut, err)
		}
		if ev := s.Event(t); ev.Ending != usage.Complete || ev.Charge != full {
			t.Errorf("%+v", ev)
		}
	}
}

// A long stream leaves progress behind: growing, and of what was delivered.
func TestProgress(t *testing.T) {
	e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead)
		for i := range 5000 {
			gatetest.Send(c, gatetest.Chunk(says(" w", i+1)))
		}
		gatetest.Send(c, gatetest.Chunk(finish("stop", 5000)+last(5000)+done), "0\r\n\r\n")
		return true
	})
	s := gatetest.New(t, gatetest.Options{}, e)
	post(t, s, request(streamed))
	final := s.Event(t)
	progress := s.Log.Progress()
	if len(progress) < 2 || len(progress) > 5 || final.Progress != 0 {
		t.Fatalf("%d progress events", len(progress))
	}
	before := int64(0)
	for i, p := range progress {
		n := p.Usage.Generated()
		if p.Progress != int64(i+1) || p.ID != final.ID || p.Ending != usage.GatewayDied || n < before+1024 || n > 5000 || p.Validate() != nil || p.Charge == 0 {
			t.Errorf("progress %+v after %d tokens", p, before)
		}
		before = n
	}
	s = gatetest.New(t, gatetest.Options{}, e)
	post(t, s, request(""))
	if n := len(s.Log.Progress()); n != 0 {
		t.Errorf("%d progress events of a whole answer, of which nothing is delivered before its end", n)
	}
}

// Limits are taken at the start, corrected at the end, and given back when a later step refuses.
func TestLimits(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	s := gatetest.New(t, gatetest.Options{}, e)
	s.Caller.RPM, s.Caller.TPM, s.Caller.Concurrency = 3, 10_000, 1
	for range 5 { // refused later: nothing is used up
		if answer, _, _ := post(t, s, strings.Replace(request(streamed), "acme/test", "none", 1)); answer.StatusCode != 404 {
			t.Fatalf("unknown model: %d", answer.StatusCode)
		}
	}
	for i := range 3 {
		answer, body, _ := post(t, s, request(streamed+`,"max_tokens":8000`))
		if answer.StatusCode != 200 || answer.Header.Get("X-Ratelimit-Limit-Requests") != "3" || answer.Header.Get("X-Ratelimit-Remaining-Requests") != fmt.Sprint(2-i) {
			t.Fatalf("request %d: %d %v %s", i, answer.StatusCode, answer.Header, body)
		}
		for s.Gate.Running() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if answer, body, _ := post(t, s, request(streamed)); answer.StatusCode != 429 || !bytes.Contains(body, []byte("Try again in")) {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}

// A drain refuses new requests at once and lets running ones end.
func TestDrain(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(role()+says("one", 1)))
		close(begun)
		<-finish
		gatetest.Send(c, gatetest.Chunk(strings.TrimPrefix(good, role()+says("one", 1))), "0\r\n\r\n")
		return true
	})
	s := gatetest.New(t, gatetest.Options{}, e)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, body, _ := post(t, s, request(streamed))
		if a := mustStream(t, body, false); a.Choices[0].Content != goodText {
			t.Errorf("%s", body)
		}
	})
	<-begun
	drained := make(chan error, 1)
	go func() { drained <- s.Gate.Drain(t.Context()) }()
	for {
		if answer, _, _ := post(t, s, request("")); answer.StatusCode == 503 {
			break
		}
	}
	select {
	case <-drained:
		t.Fatal("drained while a request ran")
	default:
	}
	close(finish)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}
