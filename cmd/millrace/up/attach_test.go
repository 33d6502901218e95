package up

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"millrace/serving/engine"
)

func TestAttachFlag(t *testing.T) {
	t.Setenv("UPSTREAM_KEY", "sk-1")
	a, err := parseAttachment("acme/llama=http://127.0.0.1:8000/v1/,engine=vllm,model=tiny,key-env=UPSTREAM_KEY,context=4096")
	if want := (attachment{"acme/llama", "http://127.0.0.1:8000", engine.VLLM, "tiny", "sk-1", 4096}); err != nil || a != want {
		t.Fatalf("%+v, %v", a, err)
	}
	for bad, says := range map[string]string{
		"http://127.0.0.1:8000":             "NAME=URL",
		"x=ftp://a":                         "address",
		"x=http://127.0.0.1:99999":          "from 1 to 65535",
		"x=http://a,engine=warp":            "Known families",
		"x=http://a,colour=red":             "unknown option",
		"x=http://a,key-env=NOT_SET_AT_ALL": "is empty",
		"x=http://a,context=-1":             "number of tokens",
	} {
		if _, err := parseAttachment(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestAttachAsksTheEngine(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"tiny","max_model_len":4096}]}`)
	}))
	a := attachment{name: "pub", url: srv.URL}
	a.ask(t.Context())
	if a.upstream != "tiny" || a.context != 4096 {
		t.Errorf("%+v", a)
	}
	srv.Close()
	b := attachment{name: "pub", url: srv.URL}
	b.ask(t.Context())
	if b.upstream != "pub" || b.context != engine.AssumedContext {
		t.Errorf("an engine that is not up yet: %+v", b)
	}
}
