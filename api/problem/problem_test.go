package problem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
)

const secretDetail = "pq: relation api_keys, host 10.0.0.7"

func TestEveryKindInOpenAIsEnvelope(t *testing.T) {
	for kind := fault.Internal; kind <= fault.Timeout; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			w := httptest.NewRecorder()
			err := fault.New(kind, "Say this.").WithParam("model").WithCause(errors.New(secretDetail))
			OpenAI(w, httptest.NewRequest("POST", "/v1/chat/completions", nil), err)
			if w.Code != kind.Status() {
				t.Fatalf("status %d, want %d", w.Code, kind.Status())
			}
			var body map[string]map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			e := body["error"]
			if len(body) != 1 || len(e) != 4 || e["message"] != "Say this." || e["param"] != "model" || e["type"] == "" {
				t.Fatalf("body %s", w.Body)
			}
			if _, known := openAITypes[kind]; !known {
				t.Fatal("the kind has no type in OpenAI's dialect")
			}
		})
	}
}

func TestWhatCallersMayRelyOn(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		status int
		body   string // of {"error": …}
		header http.Header
	}{
		{"no key", fault.New(fault.Unauthenticated, "No key."), 401,
			`{"message":"No key.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}`,
			http.Header{"Www-Authenticate": {"Bearer"}}},
		{"out of credit", fault.New(fault.OutOfCredit, "Add credit."), 402,
			`{"message":"Add credit.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}`,
			http.Header{"X-Should-Retry": {"false"}}},
		{"limited", fault.New(fault.Limited, "Slow down.").WithRetryAfter(1200 * time.Millisecond), 429,
			`{"message":"Slow down.","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}`,
			http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1200"}, "X-Should-Retry": nil}},
		{"own code", fault.New(fault.NotFound, "No model m.").WithCode("model_not_found").WithParam("model"), 404,
			`{"message":"No model m.","type":"invalid_request_error","param":"model","code":"model_not_found"}`, nil},
		{"not a fault", errors.New(secretDetail), 500,
			`{"message":"Something went wrong on our side. The error has been logged.","type":"server_error","param":null,"code":null}`, nil},
		{"body limit", &http.MaxBytesError{Limit: 10}, 413,
			`{"message":"The request body is larger than 10 bytes.","type":"invalid_request_error","param":null,"code":"request_too_large"}`, nil},
		{"unknown path", echo.ErrNotFound, 404,
			`{"message":"There is nothing at this path.","type":"invalid_request_error","param":null,"code":"unknown_path"}`, nil},
		{"wrong method", echo.ErrMethodNotAllowed, 405,
			`{"message":"This path does not take this method.","type":"invalid_request_error","param":null,"code":"method_not_allowed"}`, nil},
		{"deadline", context.DeadlineExceeded, 503,
			`{"message":"The request took too long. Try again.","type":"server_error","param":null,"code":"overloaded"}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			w.Header().Set(HeaderRequestID, "req_1")
			OpenAI(w, httptest.NewRequest("POST", "/v1/x", nil), tt.err)
			if got, want := strings.TrimSpace(w.Body.String()), `{"error":`+tt.body+`}`; w.Code != tt.status || got != want {
				t.Errorf("got %d %s\nwant %d %s", w.Code, got, tt.status, want)
			}
			if got := w.Header().Get(HeaderRequestID); got != "req_1" {
				t.Errorf("request id %q", got)
			}
			for name, want := range tt.header {
				if got := w.Header()[name]; strings.Join(got, ",") != strings.Join(want, ",") {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// A refusal for money says which budget refused and what of it is left.
func TestWhatIsLeftIsInHeaders(t *testing.T) {
	reset := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for want, b := range map[string]*fault.Budget{
		"key|10|0.25|2026-12-01T00:00:00Z": {Scope: "key", LimitUSD: "10", RemainingUSD: "0.25", Reset: reset},
		"balance||0|":                      {Scope: "balance", RemainingUSD: "0"},
		"|||":                              nil,
	} {
		f := fault.New(fault.OutOfCredit, "Used up.")
		f.Budget = b
		w := httptest.NewRecorder()
		JSON(w, httptest.NewRequest(http.MethodGet, "/", nil), f)
		h := w.Header()
		if got := strings.Join([]string{h.Get("X-Budget-Scope"), h.Get("X-Budget-Limit-Usd"), h.Get("X-Budget-Remaining-Usd"), h.Get("X-Budget-Reset")}, "|"); got != want {
			t.Errorf("headers %q, want %q", got, want)
		}
	}
}

func TestProblemJSON(t *testing.T) {
	w := httptest.NewRecorder()
	JSON(w, httptest.NewRequest("POST", "/api/v1/orgs", nil), fault.New(fault.Invalid, "Name it.").WithParam("name").WithCode("required"))
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	want := Problem{Status: 400, Title: "Bad Request", Code: "required", Detail: "Name it.", Param: "name", RequestID: w.Header().Get(HeaderRequestID)}
	if p != want || !strings.HasPrefix(p.RequestID, "req_") || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("got %+v, want %+v (%s)", p, want, w.Header())
	}
}

// The cause is for the log, with the same request id; nothing of it reaches the caller.
func TestCausesAreLoggedAndNeverLeak(t *testing.T) {
	var logged bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	for name, render := range map[string]func(http.ResponseWriter, *http.Request, error){"openai": OpenAI, "json": JSON} {
		logged.Reset()
		w := httptest.NewRecorder()
		render(w, httptest.NewRequest("GET", "/x?token=hush", nil), errors.New(secretDetail))
		if strings.Contains(w.Body.String(), "api_keys") {
			t.Errorf("%s leaks: %s", name, w.Body)
		}
		line := logged.String()
		if !strings.Contains(line, "api_keys") || !strings.Contains(line, w.Header().Get(HeaderRequestID)) || strings.Contains(line, "hush") {
			t.Errorf("%s logged %q", name, line)
		}
	}
}

func TestFrame(t *testing.T) {
	got := string(OpenAIFrame(fault.New(fault.OutOfCredit, "The cap is reached.")))
	if want := `{"error":{"message":"The cap is reached.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`; got != want {
		t.Fatalf("got %s\nwant %s", got, want)
	}
}
