package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/openai"
	"millrace/api/problem"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
	"millrace/serving/protocol/streamtest"
	"millrace/serving/responses"
	"millrace/tenants/keys"
)

// TestMain keeps the log of provoked faults out of the tests' output.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// keyring knows one key.
type keyring struct{ p keys.Principal }

const goodKey = "mk_good"

func (k keyring) Authenticate(_ context.Context, key string) (keys.Principal, error) {
	switch key {
	case goodKey:
		return k.p, nil
	case "":
		return keys.Principal{}, fault.New(fault.Unauthenticated, "No API key.")
	}
	return keys.Principal{}, fault.New(fault.Unauthenticated, "Incorrect API key.")
}

type stand struct {
	*gatetest.Stand
	url string
	t   *testing.T
	api *openai.API // where a test ends it

	handler http.Handler // where a test watches what it does to a connection
}

// newStand puts the API before engines.
func newStand(t *testing.T, family engine.Family, engines ...*gatetest.Engine) *stand {
	t.Helper()
	s := gatetest.New(t, gatetest.Options{Direct: true, Family: family}, engines...)
	e := echo.New()
	(&openai.API{Gate: s.Gate, Door: inference.Door{Auth: keyring{s.Caller}, Clock: clock.System}, Models: s.Models, Prices: pricelist{}, Responses: kept(nil, s)}).Register(e)
	return &stand{Stand: s, url: gatetest.Serve(t, e), t: t}
}

// kept is the memory of the Responses API; without a database it serves what is not stored.
func kept(d *db.DB, s *gatetest.Stand) *responses.Service {
	return responses.New(responses.Options{DB: d, Clock: clock.System, Gate: s.Gate, Sealer: master(), Frame: problem.OpenAIFrame})
}

// do sends a request with the good key and a JSON content type, both of which header can change.
func (s *stand) do(method, path, body string, header ...string) (*http.Response, []byte) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+goodKey)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
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

const hello = `{"model":"acme/test","messages":[{"role":"user","content":"hello"}],"max_tokens":40`

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
func TestChat(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	answer, body := s.do("POST", "/v1/chat/completions", hello+`,"stream":true,"stream_options":{"include_usage":true}}`)
	streamed, err := streamtest.Check(body, streamtest.Want{Usage: true, Model: gatetest.ModelName})
	if err != nil || answer.StatusCode != 200 || streamed.Usage.Completion != 40 || streamed.Choices[0].Content == "" {
		t.Fatalf("%v %d %s", err, answer.StatusCode, body)
	}
	for name, want := range map[string]string{"Millrace-Simulated": "true", "Content-Type": "text/event-stream; charset=utf-8"} {
		if answer.Header.Get(name) != want {
			t.Errorf("%s: %q", name, answer.Header.Get(name))
		}
	}
	if !strings.HasPrefix(answer.Header.Get("X-Request-Id"), "req_") || answer.Header.Get("Openai-Processing-Ms") == "" {
		t.Errorf("headers %v", answer.Header)
	}
	answer, body = s.do("POST", "/v1/chat/completions", hello+`}`, "Authorization", "", "X-Api-Key", goodKey)
	whole, err := streamtest.Whole(body, streamtest.Want{Model: gatetest.ModelName})
	if err != nil || answer.StatusCode != 200 || whole.Usage.Completion != 40 || whole.Usage.Prompt != streamed.Usage.Prompt {
		t.Fatalf("%v %d %s", err, answer.StatusCode, body)
	}
	if events := s.Log.Events(); len(events) != 2 || events[1].Usage.Generated() != 40 || "req_"+strings.ReplaceAll(events[1].ID.String(), "-", "") != answer.Header.Get("X-Request-Id") {
		t.Errorf("%+v", events)
	}
}

// Everything that can be wrong with a request is said in OpenAI's envelope with the right status, and costs nothing.
func TestErrors(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	for _, tt := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code, param              string // "" = null
	}{
		{"no key", "POST", "/v1/chat/completions", hello + `}`, []string{"Authorization", ""}, 401, "invalid_api_key", ""},
		{"a wrong key", "POST", "/v1/chat/completions", hello + `}`, []string{"Authorization", "Bearer mk_bad"}, 401, "invalid_api_key", ""},
		{"another scheme", "POST", "/v1/chat/completions", hello + `}`, []string{"Authorization", "Basic eDp5"}, 401, "invalid_api_key", ""},
		{"malformed JSON", "POST", "/v1/chat/completions", hello, nil, 400, "invalid_json", ""},
		{"an empty body", "POST", "/v1/chat/completions", ``, nil, 400, "invalid_json", ""},
		{"a form", "POST", "/v1/chat/completions", `a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", ""},
		{"compressed", "POST", "/v1/chat/completions", hello + `}`, []string{"Content-Encoding", "gzip"}, 415, "unsupported_media_type", ""},
		{"an unknown model", "POST", "/v1/chat/completions", strings.Replace(hello, "acme/test", "gpt-9", 1) + `}`, nil, 404, "model_not_found", "model"},
		{"a bad value", "POST", "/v1/chat/completions", hello + `,"temperature":9}`, nil, 400, "", "temperature"},
		{"above the model's limit", "POST", "/v1/chat/completions", strings.Replace(hello, "40", "9000", 1) + `}`, nil, 400, "", "max_tokens"},
		{"another method", "GET", "/v1/chat/completions", ``, nil, 405, "method_not_allowed", ""},
		{"a preflight", "OPTIONS", "/v1/chat/completions", ``, nil, 405, "method_not_allowed", ""},
		{"another method for models", "DELETE", "/v1/models/acme/test", ``, nil, 405, "method_not_allowed", ""},
		{"an unknown path", "POST", "/v1/audio/speech", `{}`, nil, 404, "unknown_path", ""},
		{"the root", "GET", "/v1", ``, nil, 404, "unknown_path", ""},
		{"models without a key", "GET", "/v1/models", ``, []string{"Authorization", ""}, 401, "invalid_api_key", ""},
		{"an unknown model's page", "GET", "/v1/models/none", ``, nil, 404, "model_not_found", "model"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &stand{Stand: s.Stand, url: s.url, t: t}
			answer, body := s.do(tt.method, tt.path, tt.body, tt.header...)
			var got struct {
				Error *struct {
					Message, Type string
					Param, Code   *string
				}
			}
			if err := json.Unmarshal(body, &got); err != nil || got.Error == nil || got.Error.Message == "" || got.Error.Type == "" {
				t.Fatalf("%d %s", answer.StatusCode, body)
			}
			if answer.StatusCode != tt.status || !is(got.Error.Code, tt.code) || !is(got.Error.Param, tt.param) {
				t.Errorf("%d %s", answer.StatusCode, body)
			}
			if answer.Header.Get("Content-Type") != "application/json" || !strings.HasPrefix(answer.Header.Get("X-Request-Id"), "req_") ||
				answer.StatusCode == 405 && answer.Header.Get("Allow") == "" || answer.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers %v", answer.Header)
			}
		})
	}
	if n := len(s.Log.Events()); n != 0 || s.Budgets.Settled() != 0 {
		t.Errorf("%d events, %d charged", n, s.Budgets.Settled())
	}
}

func is(got *string, want string) bool {
	return got == nil && want == "" || got != nil && *got == want
}

func TestBodiesThatAreTooLarge(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	huge := strings.NewReader(hello + `,"x":"` + strings.Repeat("x", protocol.MaxBodyBytes) + `"}`)
	for name, r := range map[string]io.Reader{"said": huge, "found": io.MultiReader(strings.NewReader(hello+`,"x":"`), &forever{})} {
		req, _ := http.NewRequest("POST", s.url+"/v1/chat/completions", r)
		req.Header.Set("Authorization", "Bearer "+goodKey)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // the connection was closed on the sender, which is as good
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != 413 || !bytes.Contains(body, []byte("request_too_large")) {
			t.Errorf("%s: %d %s", name, answer.StatusCode, body)
		}
	}
}

type forever struct{}

func (forever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A million tokens of context and more pass through.
func TestALongContext(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1000000,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"))
	s := newStand(t, engine.VLLM, e)
	s.Model.Context = 1 << 20
	text := strings.Repeat("five ", 4_000_000)
	answer, body := s.do("POST", "/v1/chat/completions", strings.Replace(hello, "hello", text, 1)+`}`)
	if answer.StatusCode != 200 || !bytes.Contains(body, []byte(`"prompt_tokens":1000000`)) {
		t.Fatalf("%d %.300s", answer.StatusCode, body)
	}
	if _, sent := e.Last(); !strings.Contains(sent, text) {
		t.Error("the engine did not get the whole prompt")
	}
}

func TestIgnoredMembersAreNamed(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	answer, body := s.do("POST", "/v1/chat/completions", hello+`,"user":"u","store":true,"temperature":1}`)
	if answer.StatusCode != 200 || answer.Header.Get("Millrace-Warning") != "ignored: user, store" {
		t.Errorf("%d %v %s", answer.StatusCode, answer.Header, body)
	}
}

func TestModels(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	answer, body := s.do("GET", "/v1/models", "")
	var list struct {
		Object string
		Data   []struct {
			ID, Object string
			Created    int64
			OwnedBy    string `json:"owned_by"`
		}
	}
	if err := json.Unmarshal(body, &list); err != nil || answer.StatusCode != 200 || list.Object != "list" || len(list.Data) != 1 ||
		list.Data[0].ID != gatetest.ModelName || list.Data[0].Object != "model" || list.Data[0].Created != 1_700_000_000 || list.Data[0].OwnedBy == "" {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	for _, path := range []string{"/v1/models/acme/test", "/v1/models/acme%2Ftest"} {
		if answer, body := s.do("GET", path, ""); answer.StatusCode != 200 || !bytes.Contains(body, []byte(`"id":"acme/test"`)) {
			t.Errorf("%s: %d %s", path, answer.StatusCode, body)
		}
		if answer, body := s.do("HEAD", path, ""); answer.StatusCode != 200 || len(body) != 0 {
			t.Errorf("HEAD %s: %d %s", path, answer.StatusCode, body)
		}
	}
}
