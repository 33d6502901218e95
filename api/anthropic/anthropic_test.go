package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/api/anthropic"
	"millrace/api/inference"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/seal"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol/messages/messagestest"
	"millrace/tenants/keys"
)

// TestMain keeps the log of provoked faults out of the tests' output.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// keyring knows one key.
type keyring struct{ p *keys.Principal }

const goodKey = "mk_good"

func (k keyring) Authenticate(_ context.Context, key string) (keys.Principal, error) {
	if key == goodKey {
		return *k.p, nil
	}
	return keys.Principal{}, fault.New(fault.Unauthenticated, "Incorrect API key.")
}

type stand struct {
	*gatetest.Stand
	url string
	t   *testing.T
}

// newStand puts the API before engines.
func newStand(t *testing.T, o gatetest.Options, engines ...*gatetest.Engine) *stand {
	t.Helper()
	o.Direct = true
	s := gatetest.New(t, o, engines...)
	master, err := seal.New(bytes.Repeat([]byte{7}, seal.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	(&anthropic.API{Gate: s.Gate, Door: inference.Door{Auth: keyring{&s.Caller}, Clock: clock.System}, Models: s.Models, Sealer: master}).Register(e)
	return &stand{Stand: s, url: gatetest.Serve(t, e), t: t}
}

// ask posts a body as official SDKs do.
func (s *stand) ask(body string, header ...string) (*http.Response, []byte) {
	return s.do(http.MethodPost, "/v1/messages?beta=true", body, header...)
}

func (s *stand) do(method, path, body string, header ...string) (*http.Response, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", goodKey)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Set("Anthropic-Beta", "oauth-2025-04-20,what-is-not-known-2030-01-01")
	for i := 0; i < len(header); i += 2 {
		if req.Header.Del(header[i]); header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, text
}

// request is a body with members after the usual ones.
func request(members string) string {
	return `{"model":"acme/test","max_tokens":40,"messages":[{"role":"user","content":"hello"}]` + members + `}`
}

const streamed = `,"stream":true`

// chunk is an event of vLLM's, with its count.
func chunk(delta, beside string, tokens int) string {
	return fmt.Sprintf("data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"inner\",\"choices\":[{\"index\":0,\"delta\":%s%s}],"+
		"\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\n", delta, beside, tokens, 10+tokens)
}

const last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n"

var (
	good = chunk(`{"role":"assistant","content":""}`, "", 0) + chunk(`{"content":"one"}`, "", 1) + chunk(`{"content":" two"}`, "", 4) +
		chunk(`{}`, `,"finish_reason":"stop"`, 5) + last
	calling = chunk(`{"role":"assistant","content":""}`, "", 0) + chunk(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}`, "", 4) +
		chunk(`{}`, `,"finish_reason":"tool_calls"`, 5) + last
)

// simulated starts the simulated engine.
func simulated(t *testing.T) *gatetest.Engine {
	t.Helper()
	e, err := sim.New(sim.Config{Model: "inner"})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = e.Run(ctx); done <- struct{}{} }()
	go func() { _ = e.Serve(ctx, ln); done <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-done; <-done })
	return &gatetest.Engine{URL: "http://" + ln.Addr().String()}
}

// A customer's request, streamed and whole, through everything to the simulated engine.
func TestMessages(t *testing.T) {
	s := newStand(t, gatetest.Options{Family: engine.Sim}, simulated(t))
	answer, body := s.ask(request(streamed))
	got, err := messagestest.Check(body)
	if err != nil || answer.StatusCode != 200 || got.Error != nil || *got.Usage.Output != 40 || *got.StopReason != "max_tokens" || got.Model != gatetest.ModelName {
		t.Fatalf("%v %d %s", err, answer.StatusCode, body)
	}
	if ct, id := answer.Header.Get("Content-Type"), answer.Header.Get("Request-Id"); ct != "text/event-stream; charset=utf-8" || !strings.HasPrefix(id, "req_") || id != answer.Header.Get("X-Request-Id") {
		t.Errorf("%v", answer.Header)
	}
	answer, body = s.ask(request(``))
	whole, err := messagestest.Whole(body)
	if err != nil || answer.Header.Get("Content-Type") != "application/json" || *whole.Usage.Output != 40 {
		t.Fatalf("%v %s", err, body)
	}
	if ev := s.Log.Events(); len(ev) != 2 || ev[0].Dialect != "messages" || ev[0].Usage.Generated() != 40 || !ev[0].Streamed || ev[1].Streamed {
		t.Errorf("%+v", ev)
	}
}

func TestToolsAndUsage(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(calling))
	s := newStand(t, gatetest.Options{}, e)
	for _, how := range []string{streamed, ""} {
		_, body := s.ask(request(how+`,"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"},"metadata":{"user_id":"u"},"top_k":5`), "X-Claude-Code-Session-Id", "s1")
		read := messagestest.Whole
		if how != "" {
			read = messagestest.Check
		}
		got, err := read(body)
		if err != nil || *got.StopReason != "tool_use" || got.Content[0].Name != "f" || string(got.Content[0].Input) != `{"a":1}` ||
			*got.Usage.Input != 6 || *got.Usage.CacheRead != 4 || *got.Usage.Output != 5 {
			t.Fatalf("%v %s", err, body)
		}
		_, upstream := e.Last()
		for _, want := range []string{`"stream":true`, `"include_usage":true`, `"tool_choice":"required"`, `"top_k":5`, `"max_completion_tokens":40`, `"model":"inner"`} {
			if !strings.Contains(upstream, want) {
				t.Errorf("the engine got no %s: %s", want, upstream)
			}
		}
	}
}

// What goes wrong is said in Anthropic's envelope, whatever goes wrong and wherever.
func TestErrors(t *testing.T) {
	overflow := gatetest.Refuse(400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens."}}`)
	tooMuch := gatetest.Refuse(400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 8240 tokens (8200 in the messages, 40 in the completion)."}}`)
	fits := gatetest.Refuse(400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 8220 tokens (8180 in the messages, 40 in the completion)."}}`)
	silent := gatetest.Refuse(400, `{"error":{"message":"context length exceeded","code":"context_length_exceeded"}}`)
	firstChunk := gatetest.Stream("data: {\"error\":{\"message\":\"Traceback: /srv/x.py\",\"code\":503}}\n\n")
	for _, tt := range []struct {
		name, method, path, body string
		header                   []string
		engine                   gatetest.Script
		status                   int
		kind, message            string
	}{
		{"no key", "POST", "/v1/messages", request(``), []string{"X-Api-Key", ""}, nil, 401, "authentication_error", "Incorrect API key."},
		{"another method", "GET", "/v1/messages", ``, nil, nil, 405, "invalid_request_error", "/v1/messages takes POST, not GET."},
		{"an unknown path", "POST", "/v1/messages/batches", ``, nil, nil, 404, "not_found_error", "There is nothing at POST /v1/messages/batches."},
		{"no JSON", "POST", "/v1/messages", `{"model"`, nil, nil, 400, "invalid_request_error", "The request body is not valid JSON."},
		{"a form", "POST", "/v1/messages", `a=b`, []string{"Content-Type", "text/plain"}, nil, 415, "invalid_request_error", "Send the body as JSON"},
		{"too large", "POST", "/v1/messages", strings.Repeat(" ", 33<<20), nil, nil, 413, "request_too_large", "The request body is larger than 32 MiB."},
		{"no max_tokens", "POST", "/v1/messages", `{"model":"acme/test","messages":[{"role":"user","content":"x"}]}`, nil, nil, 400, "invalid_request_error", "max_tokens: Field required."},
		{"deep inside", "POST", "/v1/messages", request(`,"tools":[{"name":"f"},{"name":""}]`), nil, nil, 400, "invalid_request_error", "tools.1.name: "},
		{"an unknown model", "POST", "/v1/messages", strings.Replace(request(``), "acme/test", "acme/none", 1), nil, nil, 404, "not_found_error", "The model \"acme/none\" does not exist."},
		{"too many tokens", "POST", "/v1/messages", strings.Replace(request(``), ":40", ":99999", 1), nil, nil, 400, "invalid_request_error", "max_tokens: This model gives at most 8192"},
		{"a long prompt", "POST", "/v1/messages", request(``), nil, overflow, 400, "invalid_request_error", "prompt is too long: 9000 tokens > 8192 maximum"},
		{"a long prompt in other words", "POST", "/v1/messages", request(streamed), nil, tooMuch, 400, "invalid_request_error", "prompt is too long: 8200 tokens > 8192 maximum"},
		{"a prompt without room for the answer", "POST", "/v1/messages", request(streamed), nil, fits, 400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 8180 + 40 > 8192"},
		{"a long prompt without numbers", "POST", "/v1/messages", request(``), nil, silent, 400, "invalid_request_error", "prompt is too long: "},
		{"a refusal of a member", "POST", "/v1/messages", request(`,"stop_sequences":["x"]`), nil, gatetest.Refuse(400, `{"error":{"message":"bad","param":"stop"}}`), 400, "invalid_request_error", "stop_sequences: The model refused this request: check stop_sequences"},
		{"overloaded", "POST", "/v1/messages", request(streamed), nil, gatetest.Refuse(503, `{}`), 529, "overloaded_error", "The model is overloaded."},
		{"an error first", "POST", "/v1/messages", request(streamed), nil, firstChunk, 529, "overloaded_error", "The model is overloaded."},
		{"a broken engine", "POST", "/v1/messages", request(``), nil, gatetest.Refuse(500, `Traceback`), 502, "api_error", "The model's engine failed."},
		{"counting without a key", "POST", "/v1/messages/count_tokens", request(``), []string{"X-Api-Key", "mk_bad"}, nil, 401, "authentication_error", "Incorrect"},
		{"counting an unknown model", "POST", "/v1/messages/count_tokens", strings.Replace(request(``), "acme/test", "acme/none", 1), nil, nil, 404, "not_found_error", "The model"},
		{"counting nothing", "POST", "/v1/messages/count_tokens", `{"model":"acme/test","messages":[]}`, nil, nil, 400, "invalid_request_error", "messages: At least one message is required."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script := tt.engine
			if script == nil {
				script = gatetest.Stream(good)
			}
			s := newStand(t, gatetest.Options{}, gatetest.NewEngine(t, script))
			answer, body := s.do(tt.method, tt.path, tt.body, tt.header...)
			got, err := messagestest.ErrorBody(body)
			if err != nil || answer.StatusCode != tt.status || got.Type != tt.kind || !strings.HasPrefix(got.Message, tt.message) {
				t.Fatalf("%v: %d %s", err, answer.StatusCode, body)
			}
			if id := answer.Header.Get("Request-Id"); id == "" || got.Request != id || strings.Contains(string(body), "Traceback") {
				t.Errorf("%q: %s", id, body)
			}
			if tt.status == 529 && answer.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if s.Budgets.Settled() != 0 {
				t.Error("an error was charged")
			}
		})
	}
}

func TestNoMoney(t *testing.T) {
	s := newStand(t, gatetest.Options{Cap: 1}, gatetest.NewEngine(t, gatetest.Stream(good)))
	answer, body := s.ask(request(streamed))
	if got, err := messagestest.ErrorBody(body); err != nil || answer.StatusCode != 402 || got.Type != "billing_error" || answer.Header.Get("X-Should-Retry") != "false" {
		t.Fatalf("%v: %d %s", err, answer.StatusCode, body)
	}
}

// A stream that an engine breaks ends with an error, and what was delivered is paid: here the prompt and two tokens.
func TestABrokenStreamIsPaidAsFarAsItGot(t *testing.T) {
	begun := chunk(`{"role":"assistant","content":""}`, "", 0) + chunk(`{"content":"one"}`, "", 2)
	for name, script := range map[string]gatetest.Script{
		"an error frame":      gatetest.Stream(begun + "data: {\"error\":{\"message\":\"engine died at /srv\",\"code\":500}}\n\n"),
		"an error, then DONE": gatetest.Stream(begun + "data: {\"error\":{\"message\":\"engine died\"}}\n\ndata: [DONE]\n\n"),
		"no choices":          gatetest.Stream(begun + "data: {\"choices\":[],\"error\":{\"message\":\"engine died\"}}\n\n"),
		"a reset":             gatetest.Cut(begun, len(begun)),
		"garbage":             gatetest.Stream(begun + "data: {\"cho\n\n"),
		"no finish":           gatetest.Stream(begun + "data: [DONE]\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, gatetest.Options{}, gatetest.NewEngine(t, script))
			answer, body := s.ask(request(streamed))
			got, err := messagestest.Check(body)
			if err != nil || got.Error == nil || got.Error.Type != "api_error" || *got.Content[0].Text != "one" || strings.Contains(string(body), "/srv") {
				t.Fatalf("%v: %s", err, body)
			}
			if !strings.Contains(string(body), `"request_id":"`+answer.Header.Get("Request-Id")) {
				t.Errorf("%s", body)
			}
			ev := s.Event(t)
			if ev.Ending != usage.EngineFailed || ev.Usage.Prompt() != 10 || ev.Usage.Generated() != 2 || ev.Charge == 0 || ev.Charge != s.Budgets.Settled() {
				t.Errorf("%+v, charged %d", ev, s.Budgets.Settled())
			}
			answer, body = s.ask(request(``))
			if e, err := messagestest.ErrorBody(body); err != nil || answer.StatusCode != 502 || e.Type != "api_error" {
				t.Errorf("whole: %v %d %s", err, answer.StatusCode, body)
			}
		})
	}
}

// The answer's end waits for the usage log: a stream whose event is not safe never looks whole.
func TestTheEndWaitsForTheLog(t *testing.T) {
	s := newStand(t, gatetest.Options{Times: gate.Times{Ack: 20 * time.Millisecond}}, gatetest.NewEngine(t, gatetest.Stream(good)))
	s.Log.Stick(true)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/messages", strings.NewReader(request(streamed)))
	req.Header.Set("X-Api-Key", goodKey)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil || strings.Contains(string(body), "message_stop") || !strings.Contains(string(body), "message_delta") {
		t.Fatalf("%v: %s", err, body)
	}
	s.Log.Stick(false)
}

func TestQuietStreamsGetPings(t *testing.T) {
	released := make(chan struct{})
	e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(chunk(`{"content":"one"}`, "", 1)))
		<-released
		gatetest.Send(c, gatetest.Chunk(chunk(`{}`, `,"finish_reason":"stop"`, 1)+"data: [DONE]\n\n"), "0\r\n\r\n")
		return true
	})
	s := newStand(t, gatetest.Options{Times: gate.Times{Quiet: 10 * time.Millisecond}}, e)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/messages", strings.NewReader(request(streamed)))
	req.Header.Set("X-Api-Key", goodKey)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	for buf := make([]byte, 4096); bytes.Count(body.Bytes(), []byte("event: ping")) < 3; {
		n, err := answer.Body.Read(buf)
		body.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v: %s", err, body.String())
		}
	}
	close(released)
	if _, err := io.Copy(&body, answer.Body); err != nil {
		t.Fatal(err)
	}
	if got, err := messagestest.Check(body.Bytes()); err != nil || got.Pings < 3 || *got.StopReason != "end_turn" {
		t.Fatalf("%v: %s", err, body.String())
	}
}

// A client that goes away pays for what it got.
func TestAClientThatLeaves(t *testing.T) {
	e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(chunk(`{"content":"one"}`, "", 3)))
		gatetest.Gone(c)
		return false
	})
	s := newStand(t, gatetest.Options{}, e)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/messages", strings.NewReader(request(streamed)))
	req.Header.Set("X-Api-Key", goodKey)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(answer.Body, make([]byte, 300)); err != nil {
		t.Fatal(err)
	}
	leave()
	answer.Body.Close()
	if ev := s.Event(t); ev.Ending != usage.ClientLeft || ev.Usage.Generated() != 3 || ev.Usage.Prompt() != 10 {
		t.Errorf("%+v", ev)
	}
}

func TestCountTokens(t *testing.T) {
	const tools = `,"tools":[{"name":"f","description":"a tool","input_schema":{"type":"object"}}],"system":"be brief"`
	s := newStand(t, gatetest.Options{Family: engine.Sim}, simulated(t))
	s.Caller.RPM, s.Caller.TPM = 4, 100_000
	count := func(s *stand, body string) (n int64, answer *http.Response) {
		t.Helper()
		answer, text := s.do(http.MethodPost, "/v1/messages/count_tokens", body)
		got := map[string]int64{}
		if err := json.Unmarshal(text, &got); err != nil || len(got) != 1 || answer.StatusCode != 200 {
			t.Fatalf("%v: %d %s", err, answer.StatusCode, text)
		}
		return got["input_tokens"], answer
	}
	_, body := s.ask(request(tools))
	whole, err := messagestest.Whole(body)
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	n, answer := count(s, strings.Replace(request(tools), `"max_tokens":40,`, ``, 1))
	if want := *whole.Usage.Input + *whole.Usage.CacheRead; n != want || answer.Header.Get("Millrace-Warning") != "" {
		t.Errorf("%d tokens counted, %d used, %v", n, want, answer.Header)
	}
	if left := answer.Header.Get("Anthropic-Ratelimit-Requests-Remaining"); left != "2" || answer.Header.Get("Anthropic-Ratelimit-Tokens-Limit") != "100000" {
		t.Errorf("%q left: %v", left, answer.Header)
	}
	if events := s.Log.Events(); len(events) != 1 {
		t.Errorf("%d events: counting is not billed", len(events))
	}
	for range 2 {
		count(s, request(``))
	}
	if answer, text := s.do(http.MethodPost, "/v1/messages/count_tokens", request(``)); answer.StatusCode != 429 {
		t.Errorf("a fifth request: %d %s", answer.StatusCode, text)
	}
	attached := newStand(t, gatetest.Options{Family: engine.OpenAI}, gatetest.NewEngine(t, gatetest.Stream(good)))
	if n, answer := count(attached, request(`,"system":"`+strings.Repeat("word ", 400)+`"`)); n < 400 || n > 600 || !strings.HasPrefix(answer.Header.Get("Millrace-Warning"), "estimated") {
		t.Errorf("estimated %d, %v", n, answer.Header)
	}
}

func TestPrefill(t *testing.T) {
	body := strings.Replace(request(``), `}]`, `},{"role":"assistant","content":"{\"a\":"}]`, 1)
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	s := newStand(t, gatetest.Options{}, e)
	if answer, text := s.ask(body); answer.StatusCode != 200 {
		t.Fatalf("%d %s", answer.StatusCode, text)
	}
	if _, upstream := e.Last(); !strings.Contains(upstream, `"continue_final_message":true,"add_generation_prompt":false`) {
		t.Errorf("%s", upstream)
	}
	refuse := func(s *stand) {
		t.Helper()
		answer, text := s.ask(body)
		if got, err := messagestest.ErrorBody(text); err != nil || answer.StatusCode != 400 || !strings.HasPrefix(got.Message, "messages.1: ") {
			t.Errorf("%v %d %s", err, answer.StatusCode, text)
		}
	}
	s.Model.Extras = nil
	refuse(s)
	refuse(newStand(t, gatetest.Options{Family: engine.OpenAI}, gatetest.NewEngine(t, gatetest.Stream(good))))
}

// Thinking that one turn omitted comes back to the engine in the next.
func TestOmittedThinkingGoesRound(t *testing.T) {
	thinking := chunk(`{"reasoning":"se\"cret"}`, "", 1) + chunk(`{"content":"so"}`, "", 2) + chunk(`{}`, `,"finish_reason":"stop"`, 2) + "data: [DONE]\n\n"
	e := gatetest.NewEngine(t, gatetest.Stream(thinking))
	s := newStand(t, gatetest.Options{}, e)
	for _, how := range []string{streamed, ""} {
		_, body := s.ask(request(how + `,"thinking":{"type":"adaptive","display":"omitted"}`))
		read := messagestest.Whole
		if how != "" {
			read = messagestest.Check
		}
		got, err := read(body)
		if err != nil || *got.Content[0].Thinking != "" || strings.Contains(string(body), "cret") {
			t.Fatalf("%v: %s", err, body)
		}
		history, _ := json.Marshal(got.Content)
		s.ask(strings.Replace(request(``), `}]`, `},{"role":"assistant","content":`+string(history)+`},{"role":"user","content":"go on"}]`, 1))
		if _, upstream := e.Last(); !strings.Contains(upstream, `"content":"so","reasoning_content":"se\"cret"`) {
			t.Errorf("%s", upstream)
		}
	}
}

func TestWarnings(t *testing.T) {
	s := newStand(t, gatetest.Options{}, gatetest.NewEngine(t, gatetest.Stream(good)))
	s.Model.Extras = nil
	answer, _ := s.ask(request(`,"top_k":3,"speed":"fast","tools":[{"type":"web_search_20250305","name":"web_search"}]`))
	if got := answer.Header.Get("Millrace-Warning"); got != "ignored: speed, tools[0] (web_search_20250305), top_k" {
		t.Errorf("%q", got)
	}
}

// What ends a stream is said by its type: engines that are full, money that is used up.
func TestTheTypesOfErrorsInStreams(t *testing.T) {
	begun := chunk(`{"role":"assistant","content":""}`, "", 0) + chunk(`{"content":"one"}`, "", 2)
	for _, tt := range []struct{ name, rest, want string }{
		{"full", "data: {\"error\":{\"message\":\"too many requests\",\"code\":503}}\n\n", "overloaded_error"},
		{"money", chunk(`{"content":"more"}`, "", 9000) + chunk(`{}`, `,"finish_reason":"stop"`, 9000), "billing_error"},
	} {
		gate := make(chan struct{})
		e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
			gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(begun))
			<-gate
			gatetest.Send(c, gatetest.Chunk(tt.rest), "0\r\n\r\n")
			return true
		})
		s := newStand(t, gatetest.Options{}, e)
		s.Model.MaxOutput = 100_000
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/messages", strings.NewReader(strings.Replace(request(streamed), ":40", ":50000", 1)))
		req.Header.Set("X-Api-Key", goodKey)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		s.Budgets.Break(fault.New(fault.OutOfCredit, "No credit."))
		close(gate)
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := messagestest.Check(body); err != nil || got.Error == nil || got.Error.Type != tt.want {
			t.Errorf("%s: %v: %s", tt.name, err, body)
		}
		if ev := s.Event(t); ev.Usage.Generated() != 2 || ev.Charge == 0 || ev.Charge != s.Budgets.Settled() {
			t.Errorf("%s: %+v", tt.name, ev)
		}
	}
}
