package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/cmd/millrace/trial"
)

// failsToStart runs `up` and gives what it says when it refuses.
func failsToStart(t *testing.T, c trial.UpConfig) string {
	t.Helper()
	u, err := trial.LaunchUp(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	code, err := u.Wait(ctx)
	if err != nil || code != 1 {
		t.Fatalf("exit code %d, %v\n%s", code, err, u.Said())
	}
	if _, err := os.Stat(c.ReadyFile); err == nil {
		t.Error("it says that it is ready")
	}
	return u.Said()
}

func TestReadyFileAndWelcome(t *testing.T) {
	u := sharedUp(t)
	path := filepath.Join(shared.dir, "ready.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"url", "admin_login_url", "customer_login_url", "admin_token", "api_key", "models", "metrics_url", "pid"} {
		if fields[name] == nil || fields[name] == "" {
			t.Errorf("%s is missing: %v", name, fields)
		}
		delete(fields, name)
	}
	if len(fields) > 0 {
		t.Errorf("unknown fields: %v", fields)
	}
	if u.Ready.PID != u.PID {
		t.Errorf("pid %d, want %d", u.Ready.PID, u.PID)
	}
	for _, want := range []string{u.Ready.AdminLoginURL, u.Ready.CustomerLoginURL, u.Ready.APIKey, "curl " + u.Ready.URL + "/v1/chat/completions", "simulated"} {
		if !strings.Contains(u.Said(), want) {
			t.Errorf("a person is not told %s:\n%s", want, u.Said())
		}
	}
}

// Everything that is named in the welcome answers.
func TestEverythingServes(t *testing.T) {
	u := sharedUp(t)
	for what, c := range map[string]struct{ url, bearer, says string }{
		"metrics":         {u.Ready.MetricsURL, "", "go_goroutines"},
		"sign-in link":    {u.Ready.AdminLoginURL, "", "<html"},
		"console":         {u.Ready.URL + "/", "", "<html"},
		"control API":     {u.Ready.URL + "/api/v1/status", u.Ready.AdminToken, "open_epochs"},
		"list of models":  {u.Ready.URL + "/v1/models", u.Ready.APIKey, u.Ready.Models[0]},
		"API description": {u.Ready.URL + "/api/v1/openapi.yaml", "", "openapi:"},
	} {
		if status, body := get(t, c.url, c.bearer); status != http.StatusOK || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %.300s", what, status, body)
		}
	}
	for what, url := range map[string]string{"metrics on the public port": u.Ready.URL + "/metrics", "profiles on the public port": u.Ready.URL + "/debug/pprof/"} {
		if status, body := get(t, url, ""); status != http.StatusNotFound {
			t.Errorf("%s: %d %.300s", what, status, body)
		}
	}
}

func get(t testing.TB, url, bearer string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestASecondUpOnTheFolderIsRefused(t *testing.T) {
	sharedUp(t)
	c := config(shared.dir)
	c.ReadyFile = filepath.Join(folder(t), "ready.json")
	if said := failsToStart(t, c); !strings.Contains(said, "another millrace process is using this data folder") || !strings.Contains(said, c.Data) {
		t.Error(said)
	}
}

func TestABusyPortIsSaidAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := config(folder(t), "--listen", l.Addr().String())
	want := fmt.Sprintf("%s is in use by another program: stop it or choose another address with --listen", l.Addr())
	if said := failsToStart(t, c); !strings.Contains(said, want) {
		t.Error(said)
	}
	if _, err := os.Stat(filepath.Join(c.Data, "postgres")); err == nil {
		t.Error("a database was made first")
	}
}

func TestAForeignFolderIsLeftAlone(t *testing.T) {
	dir := folder(t)
	c := config(dir, "--fresh")
	precious := filepath.Join(c.Data, "precious.txt")
	if err := os.MkdirAll(c.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := failsToStart(t, c); !strings.Contains(said, "holds files that are not Millrace's") {
		t.Error(said)
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}

// One life after another on the same folder: what was bought stays, --fresh starts over.
func TestRestartKeepsEverythingAndFreshNothing(t *testing.T) {
	c := config(folder(t))
	u := startUp(t, c)
	mine := newCustomer(t, u, "5")
	got := mine.must(t, trial.Ask{Prompt: "remember me", MaxTokens: 40, Stream: true})
	bill := mine.bill(t, got.Request)
	agrees(t, got, bill)
	balance := mine.balance(t).Promotional
	if want := int64(5_000_000_000) - bill.Charged.Nano; balance.Nano != want || bill.Charged.Nano == 0 {
		t.Fatalf("balance %d, want %d", balance.Nano, want)
	}
	first := u.Ready
	stopUp(t, u)

	u = startUp(t, c)
	if u.Ready.APIKey != first.APIKey || u.Ready.AdminToken != first.AdminToken {
		t.Error("the demo customer or the operator's token is another one")
	}
	if strings.Contains(u.Said(), first.APIKey) {
		t.Error("the key is shown a second time")
	}
	mine.url, mine.desk.URL = u.Ready.URL, u.Ready.URL
	if after := mine.balance(t).Promotional; after != balance {
		t.Errorf("balance %+v, was %+v", after, balance)
	}
	if again := mine.bill(t, got.Request); again.Charged != bill.Charged || again.Tokens != bill.Tokens {
		t.Errorf("%+v, was %+v", again, bill)
	}
	if used := mine.used(t); used.Requests != 1 || used.Charged != bill.Charged {
		t.Errorf("usage %+v", used)
	}
	mine.must(t, trial.Ask{Prompt: "and serve me", MaxTokens: 5})
	stopUp(t, u)

	c.Args = []string{"--fresh"}
	u = startUp(t, c)
	mine.url = u.Ready.URL
	if got := mine.chat(trial.Ask{Prompt: "who am I?", MaxTokens: 5}); got.Status != http.StatusUnauthorized {
		t.Errorf("a key of the old life: %d %s", got.Status, got.Text)
	}
	if u.Ready.APIKey == first.APIKey || !strings.Contains(u.Said(), u.Ready.APIKey) {
		t.Error("no new key, or it is not shown")
	}
}
