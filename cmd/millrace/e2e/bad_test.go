package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/cmd/millrace/trial"
)

// What customers get wrong: the right status, OpenAI's envelope, nothing of the inside, nothing charged.
func TestBadInput(t *testing.T) {
	u := sharedUp(t)
	mine := newCustomer(t, u, "1")
	revoked := mine.newKey(t, nil)
	mine.call(t, http.MethodDelete, "/orgs/"+mine.org+"/keys/"+revoked.Key.ID, nil, nil)
	expiring := mine.newKey(t, map[string]any{"expires_at": time.Now().Add(time.Second)})
	const chat = "/v1/chat/completions"
	good := `{"model":"` + mine.model + `","messages":[{"role":"user","content":"hi"}]}`
	with := func(member string) string { return strings.TrimSuffix(good, "}") + "," + member + "}" }
	time.Sleep(time.Until(*expiring.Key.ExpiresAt))
	for name, c := range map[string]struct {
		method, path, kind, key, body string
		status                        int
		code, param                   string
	}{
		"malformed JSON":         {body: `{"model": `, status: 400},
		"no object":              {body: `[]`, status: 400},
		"nothing":                {body: ``, status: 400},
		"invalid UTF-8":          {body: "{\"model\":\"\xff\"}", status: 400},
		"no messages":            {body: `{"model":"` + mine.model + `"}`, status: 400, param: "messages"},
		"a wrong type":           {body: with(`"temperature":"hot"`), status: 400, param: "temperature"},
		"out of range":           {body: with(`"top_p":7`), status: 400, param: "top_p"},
		"max_tokens of 0":        {body: with(`"max_tokens":0`), status: 400, param: "max_tokens"},
		"max_tokens beyond":      {body: with(`"max_tokens":99999999`), status: 400, param: "max_tokens"},
		"unknown model":          {body: strings.Replace(good, mine.model, "acme/none", 1), status: 404, code: "model_not_found"},
		"no key":                 {key: "-", status: 401, code: "invalid_api_key"},
		"a made-up key":          {key: "mr_live_0000000000000000000000000000000000000000000000000", status: 401, code: "invalid_api_key"},
		"a revoked key":          {key: revoked.Secret, status: 401, code: "api_key_revoked"},
		"an expired key":         {key: expiring.Secret, status: 401, code: "api_key_expired"},
		"the operator's token":   {key: u.Ready.AdminToken, status: 401, code: "invalid_api_key"},
		"a form":                 {kind: "application/x-www-form-urlencoded", status: 415},
		"unknown path":           {path: "/v1/chat/complete", status: 404, code: "unknown_path"},
		"the root of the API":    {path: "/v1", status: 404, code: "unknown_path"},
		"another API's path":     {path: "/v1/engines/x/completions", status: 404, code: "unknown_path"},
		"wrong method":           {method: http.MethodPut, status: 405, code: "method_not_allowed"},
		"wrong method of models": {method: http.MethodPost, path: "/v1/models", status: 405, code: "method_not_allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			method, path, key, kind, body := orElse(c.method, http.MethodPost), orElse(c.path, chat), orElse(c.key, mine.secret), orElse(c.kind, "application/json"), c.body
			if body == "" && name != "nothing" {
				body = good
			}
			req, err := http.NewRequestWithContext(t.Context(), method, u.Ready.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if req.Header.Set("Content-Type", kind); key != "-" {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			refused(t, req, c.status, c.code, c.param)
		})
	}
	nothingCharged(t, mine, 1_000_000_000)
}

func TestBodyTooLarge(t *testing.T) {
	u := sharedUp(t)
	mine := newCustomer(t, u, "1")
	const limit = 32 << 20
	for name, body := range map[string]io.Reader{"told by its length": bytes.NewReader(make([]byte, limit+1)), "not told": io.LimitReader(spaces{}, limit+1)} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.Ready.URL+"/v1/chat/completions", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+mine.secret)
			refused(t, req, http.StatusRequestEntityTooLarge, "request_too_large", "")
		})
	}
	nothingCharged(t, mine, 1_000_000_000)
}

type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// inside are words that a customer must never read.
var inside = []string{"panic", "goroutine", "postgres", "pgx", "nats", "sql", "127.0.0.1:", ".go:", "local-1", "epoch"}

// refused sends and checks the whole refusal.
func refused(t *testing.T, req *http.Request, status int, code, param string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Error *struct {
			Message, Type string
			Param, Code   *string
		}
	}
	if err := json.Unmarshal(text, &body); err != nil || body.Error == nil || body.Error.Message == "" || body.Error.Type == "" {
		t.Fatalf("not OpenAI's envelope: %v: %d %s", err, resp.StatusCode, text)
	}
	e := body.Error
	if resp.StatusCode != status || code != "" && (e.Code == nil || *e.Code != code) || param != "" && (e.Param == nil || *e.Param != param) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" || !strings.HasPrefix(resp.Header.Get("X-Request-Id"), "req_") {
		t.Errorf("headers: %v", resp.Header)
	}
	for _, word := range inside {
		if strings.Contains(strings.ToLower(string(text)), word) {
			t.Errorf("the inside shows (%s): %s", word, text)
		}
	}
}

// nothingCharged checks that a customer still has all of his credit: what is asked last is rated last.
func nothingCharged(t *testing.T, c *customer, nano int64) {
	t.Helper()
	got := c.must(t, trial.Ask{Prompt: "one good one", MaxTokens: 3})
	bill := c.bill(t, got.Request)
	if left := c.balance(t).Promotional.Nano + bill.Charged.Nano; left != nano {
		t.Errorf("%d of %d nano-USD are left", left, nano)
	}
	if used := c.used(t); used.Requests != 1 {
		t.Errorf("usage: %+v", used)
	}
}
