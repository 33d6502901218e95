package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/cmd/millrace/trial"
	"millrace/internal/ids"
)

// sdk is where the scripts for other languages' clients are.
const sdk = "../../../test/sdk/python"

const (
	installLimit = 10 * time.Minute
	pythonLimit  = 5 * time.Minute // of one script; a real engine on a busy machine is slow
)

// python gives the interpreter of an environment with the official client: made once, kept in the user's cache.
var python = sync.OnceValues(func() (string, error) {
	want, err := os.ReadFile(filepath.Join(sdk, "requirements.txt"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(want)
	dir := filepath.Join(cache, "millrace", "test-python-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, "lock")) // one installation at a time
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	bin, done := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "done")
	if _, err := os.Stat(done); err == nil {
		return bin, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installLimit)
	defer cancel()
	for _, step := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		{bin, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join(sdk, "requirements.txt")},
	} {
		if out, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", step, err, out)
		}
	}
	return bin, os.WriteFile(done, want, 0o644)
})

// needPython skips, and says so, where there is no Python to be had.
func needPython(t *testing.T) {
	t.Helper()
	if err := exec.Command("python3", "-c", "import ensurepip, venv").Run(); err != nil {
		t.Skip("SKIPPED: THE OFFICIAL PYTHON CLIENT IS NOT TESTED. Install python3 with venv (Debian: apt-get install python3-venv).")
	}
	if _, err := python(); err != nil {
		t.Fatalf("the official client cannot be installed: %v", err)
	}
}

// script runs the client and reads what it saw.
func script(t *testing.T, out any, args ...string) {
	t.Helper()
	bin, err := python()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pythonLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append([]string{filepath.Join(sdk, "client.py")}, args...)...)
	text, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		t.Fatalf("client.py %s: %v", args[0], err)
	}
	if err := json.Unmarshal(bytes.TrimSpace(text), out); err != nil {
		t.Fatalf("client.py %s said %s", args[0], text)
	}
}

// sawAnswer is what the client saw of an answer.
type sawAnswer struct {
	Request string
	Usage   struct{ Prompt, Completion, Cached int64 }
	Pieces  int64
	Text    string
	Finish  string
}

func (s sawAnswer) answer(t *testing.T) (got trial.Answer) {
	t.Helper()
	var err error
	if got.Request, err = ids.Parse(ids.Request, s.Request); err != nil {
		t.Fatal(err)
	}
	got.Usage = &trial.Usage{Prompt: s.Usage.Prompt, Completion: s.Usage.Completion}
	got.Usage.Details.Cached = s.Usage.Cached
	return got
}

// officialClient checks that a customer with the official client is served, and billed to the token. slack is how many
// tokens an engine may count that show in no piece of an answer.
func officialClient(t *testing.T, c *customer, slack int64) {
	t.Helper()
	for _, kind := range []string{"whole", "stream"} {
		var saw sawAnswer
		script(t, &saw, kind, c.url, c.secret, c.model)
		agrees(t, saw.answer(t), c.bill(t, saw.answer(t).Request))
		if saw.Text == "" || saw.Usage.Completion == 0 || saw.Finish == "" {
			t.Errorf("%s: %+v", kind, saw)
		}
		if kind == "stream" && (saw.Pieces > saw.Usage.Completion || saw.Pieces < saw.Usage.Completion-slack) {
			t.Errorf("stream: %d pieces of %d tokens", saw.Pieces, saw.Usage.Completion)
		}
	}
	wire := listenIn(t, c.url)
	var saw sawAnswer
	script(t, &saw, "stop", wire.url, c.secret, c.model)
	bill := c.bill(t, saw.answer(t).Request)
	wire.drained(t)
	written := wire.pieces.Load()
	if bill.Ending != "client_left" || bill.Tokens.Output < written || bill.Tokens.Output > written+slack || saw.Pieces > written {
		t.Errorf("stopped mid-way: %d tokens are billed (%s), %d were written to the client, it has read %d", bill.Tokens.Output, bill.Ending, written, saw.Pieces)
	}
	t.Logf("stopped mid-way: read %d, written %d, billed %d", saw.Pieces, written, bill.Tokens.Output)
}

func TestOfficialPythonClient(t *testing.T) {
	needPython(t)
	mine := newCustomer(t, sharedUp(t), "5")
	officialClient(t, mine, 0)
	t.Run("refusals", func(t *testing.T) {
		poor := newCustomer(t, sharedUp(t), "")
		type failure struct {
			Class, Code, Type, Message string
			Status, Tries              int
		}
		var saw struct {
			BadKey  failure `json:"bad_key"`
			NoModel failure `json:"no_model"`
			Call    failure `json:"call"`
		}
		script(t, &saw, "errors", poor.url, poor.secret, poor.model)
		for what, c := range map[string]struct {
			got         failure
			class, code string
			status      int
		}{
			"bad key":       {saw.BadKey, "AuthenticationError", "invalid_api_key", http.StatusUnauthorized},
			"unknown model": {saw.NoModel, "NotFoundError", "model_not_found", http.StatusNotFound},
			"no credit":     {saw.Call, "APIStatusError", "insufficient_quota", http.StatusPaymentRequired},
		} {
			if c.got.Class != c.class || c.got.Code != c.code || c.got.Status != c.status || c.got.Tries != 1 || c.got.Message == "" {
				t.Errorf("%s: %+v", what, c.got)
			}
		}
	})
}
