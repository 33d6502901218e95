package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// node is a folder with the official clients in it, by the versions that the lock file names.
var node = sync.OnceValues(func() (string, error) {
	pins := filepath.Join(sdk, "node", "package-lock.json")
	return installed("test-node", pins, func(dir string) [][]string {
		return [][]string{
			{"cp", filepath.Join(sdk, "node", "package.json"), pins, dir},
			{"npm", "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund"},
		}
	})
})

// nodeScript gives the command for a script. Node looks for clients beside the script: both are brought to one place.
func nodeScript(name string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		clients, err := node()
		if err != nil {
			t.Fatalf("the official clients cannot be installed: %v", err)
		}
		dir := t.TempDir()
		scripts, err := filepath.Glob(filepath.Join(sdk, "node", "*.mjs"))
		if err != nil || len(scripts) == 0 {
			t.Fatalf("no scripts, %v", err)
		}
		for _, from := range scripts {
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(from)), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Join(clients, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		return []string{"node", filepath.Join(dir, name)}
	}
}

// needNode skips, and says so, where there is no Node to be had.
func needNode(t *testing.T) {
	t.Helper()
	if !slow() {
		t.Skip("the official Node clients, about 100 MB: run with MILLRACE_SLOW=1 (make test-slow)")
	}
	const how = "SKIPPED: THE OFFICIAL NODE CLIENTS ARE NOT TESTED. Install Node 20 or newer with npm (https://nodejs.org)"
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s: there is no %s.", how, program)
		}
	}
	if out, err := exec.Command("node", "-e", "process.exit(+(process.versions.node.split('.')[0] < 20))").CombinedOutput(); err != nil {
		t.Skipf("%s: this one is older. %s", how, strings.TrimSpace(string(out)))
	}
}

func TestOfficialNodeClients(t *testing.T) {
	needNode(t)
	sdkProgram{apis: threeAPIs, command: nodeScript("scenarios.mjs")}.prove(t)
}

// The AI SDK runs functions itself, and says in its own words how answers end.
func TestVercelAISDK(t *testing.T) {
	needNode(t)
	sdkProgram{
		apis:    []string{"chat", "compatible chat", "responses", "messages"},
		words:   sdkWords{done: "stop", length: "length", stop: "stop", calls: "tool-calls"},
		command: nodeScript("ai.mjs"),
		lacks: []string{
			"chat think", "chat think stream", // @ai-sdk/openai shows no reasoning of Chat Completions
			"messages bad_value", // it cuts temperatures down by itself
			"chat models", "compatible chat models", "messages models", "messages count", "messages bearer",
			"responses sealed", "responses previous", "responses previous stream", "responses kept", "responses background", "responses cancelled",
		},
	}.prove(t)
}
