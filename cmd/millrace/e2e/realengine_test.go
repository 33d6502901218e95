package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"millrace/cmd/millrace/trial"
)

const (
	vllmScripts = "../../../test/engines/vllm"
	vllmSetup   = 30 * time.Minute // about 6 GB to fetch
	vllmStart   = 5 * time.Minute
	realStart   = 15 * time.Minute // of `up` with a download of weights
	// How many tokens of a real engine may show in no piece: half a letter waits for its other half. Random weights make
	// many halves.
	realSlack   = 3
	randomSlack = 15
)

func heavy(t *testing.T) {
	t.Helper()
	if !slow() {
		t.Skip("a real engine: run with MILLRACE_SLOW=1 (make test-slow)")
	}
	needPython(t)
}

// A real model on this machine, as `make up-real` serves it.
func TestOfficialPythonClientOnARealModel(t *testing.T) {
	heavy(t)
	c := config(folder(t), "--engine", "llamacpp")
	ctx, cancel := context.WithTimeout(t.Context(), realStart)
	defer cancel()
	u, err := trial.StartUp(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopUp(t, u) })
	officialClient(t, newCustomer(t, u, "5"), realSlack)
	stopUp(t, u)
	explained(t, c.Data)
}

// A real vLLM that someone already runs.
func TestOfficialPythonClientOnAttachedVLLM(t *testing.T) {
	heavy(t)
	url := startVLLM(t)
	c := config(folder(t), "--replicas", "1", "--attach", "acme/tiny="+url+",engine=vllm")
	u := startUp(t, c)
	mine := newCustomer(t, u, "5")
	mine.model = "acme/tiny"
	officialClient(t, mine, randomSlack)
	stopUp(t, u)
	explained(t, c.Data)
}

// startVLLM installs vLLM, when it is not there yet, and serves the tiny model. MILLRACE_TEST_VLLM names one that runs.
func startVLLM(t *testing.T) (url string) {
	t.Helper()
	if url := os.Getenv("MILLRACE_TEST_VLLM"); url != "" {
		return url
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "millrace", "test-vllm")
	ctx, cancel := context.WithTimeout(t.Context(), vllmSetup)
	defer cancel()
	if out, err := exec.CommandContext(ctx, filepath.Join(vllmScripts, "setup.sh"), dir).CombinedOutput(); err != nil {
		t.Fatalf("setup of vLLM: %v\n%s", err, out)
	}
	port := freePort(t)
	p, err := trial.StartProcess(filepath.Join(vllmScripts, "run.sh"), []string{dir, fmt.Sprint(port)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if _, err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	within(t, vllmStart, "vLLM serves", func() bool {
		select {
		case <-p.Done():
			t.Fatalf("vLLM ended:\n%s", p.Said())
		case <-time.After(time.Second):
		}
		resp, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return url
}
