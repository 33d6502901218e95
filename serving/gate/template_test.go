package gate_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"millrace/serving/gate/gatetest"
)

// What a model's template does not take is said otherwise, once, and the client is told.
func TestWhatTemplatesDoNotTake(t *testing.T) {
	const mid = `[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"system","content":"mid"},{"role":"user","content":"v"}]`
	for _, tt := range []struct {
		name, messages, refusal string
		status, requests        int
		sent, warned            string
	}{
		{"a system message", mid, `{"error":{"message":"System message must be at the beginning.","type":"BadRequestError","code":400}}`, 200, 2, `{"role":"user","content":"mid\n\nv"}`, "changed: system messages"},
		{"roles", mid, `{"error":{"message":"Conversation roles must alternate user/assistant/user/assistant/...","code":400}}`, 200, 2, `{"role":"user","content":"mid\n\nv"}`, "changed: system messages"},
		{"no reasoning", mid, `{"error":{"message":"Missing 'reasoning_content' field in the assistant message at message index 2","code":400}}`, 200, 2, `"content":"a","reasoning_content":""}`, ""},
		{"nothing to say otherwise", `[{"role":"system","content":"s"},{"role":"user","content":"u"}]`, `{"error":{"message":"System message must be at the beginning.","code":400}}`, 400, 1, `"content":"s"`, ""},
		{"other words", mid, `{"error":{"message":"No.","code":400}}`, 400, 1, `{"role":"system","content":"mid"}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refuse, answer := gatetest.Refuse(http.StatusBadRequest, tt.refusal), gatetest.Stream(good)
			e := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
				if n == 1 {
					return refuse(c, n)
				}
				return answer(c, n)
			})
			s := gatetest.New(t, gatetest.Options{}, e)
			got, text, err := post(t, s, `{"model":"acme/test","messages":`+tt.messages+`}`)
			if err != nil || got.StatusCode != tt.status || int(e.Requests()) != tt.requests {
				t.Fatalf("%d %s, %d requests, %v", got.StatusCode, text, e.Requests(), err)
			}
			if _, sent := e.Last(); !strings.Contains(sent, tt.sent) {
				t.Errorf("the engine got %s", sent)
			}
			if w := got.Header.Get("Millrace-Warning"); !strings.HasPrefix(w, tt.warned) || tt.warned == "" && w != "" {
				t.Errorf("warned %q", w)
			}
		})
	}
}

// An engine that goes on refusing is not asked for ever.
func TestTemplatesThatTakeNothing(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Refuse(http.StatusBadRequest, `{"error":{"message":"System message must be at the beginning.","code":400}}`))
	s := gatetest.New(t, gatetest.Options{}, e)
	got, text, err := post(t, s, `{"model":"acme/test","messages":[{"role":"user","content":"u"},{"role":"system","content":"mid"}]}`)
	if err != nil || got.StatusCode != 400 || e.Requests() != 2 {
		t.Errorf("%d %s, %d requests, %v", got.StatusCode, text, e.Requests(), err)
	}
}
