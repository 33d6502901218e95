package batch_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/serving/batch"
	"millrace/serving/gate/gatetest"
)

// Every dialect answers, and says its errors, in its own words.
func TestLinesOfEveryDialect(t *testing.T) {
	w := newWorld(t)
	s := gatetest.New(t, direct, gatetest.NewEngine(t, gatetest.Stream(said)))
	w.gateway(s, nil)
	for path, tt := range map[string]struct{ body, limit, good, bad string }{
		"/v1/responses": {`"input":"hello"`, "max_output_tokens", `"object":"response"`, `"param":"max_output_tokens"`},
		"/v1/messages":  {`"messages":[{"role":"user","content":"hello"}]`, "max_tokens", `"type":"message"`, `"type":"error","error":{"type":"invalid_request_error"`},
	} {
		line := func(id string, tokens int) string {
			return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":%q,"body":{"model":"acme/test",%s,%q:%d}}`+"\n", id, path, tt.body, tt.limit, tokens)
		}
		b := w.createFor(path, line("good", 20)+line("bad", 9000))
		b = w.status(b.ID, batch.Completed)
		good, bad := w.answers(b.OutputFileID)["good"], w.answers(b.ErrorFileID)["bad"]
		if good.Response == nil || !strings.Contains(string(good.Response.Body), tt.good) || !strings.Contains(string(good.Response.Body), `"hi"`) {
			t.Errorf("%s: %+v", path, good)
		}
		if bad.Response == nil || bad.Response.Status != 400 || !strings.Contains(string(bad.Response.Body), tt.bad) {
			t.Errorf("%s: %+v", path, bad)
		}
	}
	for param, members := range map[string]string{"body.background": `"background":true`, "body.conversation": `"conversation":"conv_1"`, "body.service_tier": `"service_tier":"priority"`} {
		b := w.createFor("/v1/responses", `{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"acme/test","input":"x",`+members+`}}`)
		if b = w.status(b.ID, batch.Failed); !strings.Contains(*b.Errors, param) {
			t.Errorf("%s: %s", param, *b.Errors)
		}
	}
}
