package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// installed makes a folder in the user's cache, once for the content of a file that pins versions: by the steps that
// install gives.
func installed(name, pins string, install func(dir string) [][]string) (dir string, err error) {
	want, err := os.ReadFile(pins)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(want)
	dir = filepath.Join(cache, "millrace", name+"-"+hex.EncodeToString(sum[:6]))
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
	done := filepath.Join(dir, "done")
	if _, err := os.Stat(done); err == nil {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installLimit)
	defer cancel()
	for _, step := range install(dir) {
		if out, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", step, err, out)
		}
	}
	return dir, os.WriteFile(done, want, 0o644)
}

// python is an environment with the official clients.
var python = sync.OnceValues(func() (string, error) {
	pins := filepath.Join(sdk, "python", "requirements.txt")
	dir, err := installed("test-python", pins, func(dir string) [][]string {
		return [][]string{
			{"python3", "-m", "venv", "--clear", dir},
			{filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", pins},
		}
	})
	return filepath.Join(dir, "bin", "python"), err
})

var pythonSDK = sdkProgram{
	apis: append(slices.Clone(threeAPIs), "platform"),
	command: func(t *testing.T) []string {
		bin, err := python()
		if err != nil {
			t.Fatalf("the official clients cannot be installed: %v", err)
		}
		return []string{bin, "-B", filepath.Join(sdk, "python", "scenarios.py")}
	},
}

// needPython skips, and says so, where there is no Python to be had.
func needPython(t *testing.T) {
	t.Helper()
	if err := exec.Command("python3", "-c", "import ensurepip, venv").Run(); err != nil {
		t.Skip("SKIPPED: THE OFFICIAL PYTHON CLIENTS ARE NOT TESTED. Install python3 with venv (Debian: apt-get install python3-venv).")
	}
}

func TestOfficialPythonClients(t *testing.T) {
	needPython(t)
	pythonSDK.prove(t)
}

// briefAnswer is how many tokens a real engine is asked for: it is slow on a busy machine.
const briefAnswer = 60

// officialClient checks that a customer of a real engine is served and billed to the token, whichever API the official
// client speaks. slack is how many tokens an engine may count that show in no piece of an answer.
func officialClient(t *testing.T, c *customer, slack int64) {
	t.Helper()
	scenarios := []string{"whole", "stream", "leave"}
	for _, api := range threeAPIs {
		t.Run(api, func(t *testing.T) {
			j := newSDKJudge(t, c, api)
			j.slack, j.real = slack, true
			ask := newSDKAsk(c)
			ask.Leave, ask.Only, ask.Brief = j.wire.url, scenarios, briefAnswer
			j.saw = pythonSDK.run(t, api, ask)
			for _, name := range scenarios {
				j.judge(t, name)
			}
		})
	}
}
