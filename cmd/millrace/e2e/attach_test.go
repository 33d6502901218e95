package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"millrace/cmd/millrace/trial"
)

// someonesEngine is an engine that runs already: the simulated one, which answers as vLLM does.
func someonesEngine(t *testing.T, args ...string) (p *trial.Process, url string) {
	t.Helper()
	port := freePort(t)
	p, err := trial.StartProcess(millrace, append([]string{"sim-engine", "--port", fmt.Sprint(port), "--model", "tiny", "--context", "4096"}, args...), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	eventually(t, "the engine answers", func() bool {
		resp, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p, url
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// An engine that someone already runs is callable at once, with the demo key and at the demo price; another that is not up
// is no obstacle.
func TestAttach(t *testing.T) {
	engine, url := someonesEngine(t)
	c := config(folder(t), "--replicas", "1", "--attach", "acme/tiny="+url+"/v1,engine=vllm", "--attach", fmt.Sprintf("acme/later=http://127.0.0.1:%d", freePort(t)))
	u := startUp(t, c)
	if models := strings.Join(u.Ready.Models, " "); !strings.Contains(models, "acme/tiny") || !strings.Contains(models, "acme/later") {
		t.Errorf("models: %s", models)
	}
	demo := &customer{url: u.Ready.URL, secret: u.Ready.APIKey, desk: deskOf(u)}
	demo.org = demoOrg(t, demo)
	for _, stream := range []bool{true, false} {
		got := demo.must(t, trial.Ask{Model: "acme/tiny", Prompt: "hello", MaxTokens: 30, Stream: stream})
		bill := demo.bill(t, got.Request)
		agrees(t, got, bill)
		if bill.Model != "acme/tiny" || bill.Charged.Nano == 0 || got.Usage.Completion != 30 {
			t.Errorf("%+v", bill)
		}
	}
	if got := demo.chat(trial.Ask{Model: "acme/later", Prompt: "hello", MaxTokens: 3}); got.Status/100 != 5 {
		t.Errorf("an engine that is not up: %d %s", got.Status, got.Text)
	}
	if err := engine.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := demo.chat(trial.Ask{Model: "acme/tiny", Prompt: "hello", MaxTokens: 3}); got.Status/100 != 5 || strings.Contains(string(got.Text), "127.0.0.1") {
		t.Errorf("an engine that has gone: %d %s", got.Status, got.Text)
	}
	someoneAgain(t, url)
	eventually(t, "the engine serves again", func() bool {
		return demo.chat(trial.Ask{Model: "acme/tiny", Prompt: "hello", MaxTokens: 3}).Whole
	})
	if said := failsToStart(t, config(folder(t), "--attach", "x=http://127.0.0.1:1,engine=warp")); !strings.Contains(said, "Known families") {
		t.Error(said)
	}
}

// someoneAgain starts the engine at its old address.
func someoneAgain(t *testing.T, url string) {
	t.Helper()
	port := url[strings.LastIndexByte(url, ':')+1:]
	p, err := trial.StartProcess(millrace, []string{"sim-engine", "--port", port, "--model", "tiny", "--context", "4096"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
}

// demoOrg gives the demo customer's organization.
func demoOrg(t *testing.T, c *customer) string {
	t.Helper()
	var orgs struct {
		Data []struct{ ID, Name string }
	}
	c.call(t, http.MethodGet, "/orgs", nil, &orgs)
	for _, o := range orgs.Data {
		if strings.Contains(o.Name, "Demo") {
			return o.ID
		}
	}
	t.Fatalf("no demo customer: %+v", orgs)
	return ""
}
