package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// agentLimit is for one agent's task: seconds, but they start slowly on a busy machine.
const agentLimit = 2 * time.Minute

// agentTask is what every agent is asked.
const agentTask = "Print a word with your shell, then tell me which word it was."

// agents is a folder with the coding agents in it. Not `npm ci`: it wants every platform's program in the lock file, which
// lacks those that npm could not find (OpenCode's but for Linux on x64). Install scripts only link the programs, which are called directly.
var agents = sync.OnceValues(func() (string, error) {
	pins := filepath.Join(sdk, "agents", "package-lock.json")
	return installed("test-agents", pins, func(dir string) [][]string {
		return [][]string{
			{"cp", filepath.Join(sdk, "agents", "package.json"), pins, dir},
			{"npm", "install", "--prefix", dir, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"},
		}
	})
})

// agent is a program that customers give a base URL, a key and a task.
type agent struct {
	program string // below node_modules; PLATFORM is this machine's
	dialect string
	// prepare writes what it needs into its home, and gives its arguments and environment.
	prepare func(t *testing.T, home string, c *customer) (args, env []string)
}

var codingAgents = map[string]agent{
	"claude-code": {"@anthropic-ai/claude-code-PLATFORM*/claude", "messages", func(_ *testing.T, _ string, c *customer) (args, env []string) {
		return []string{"-p", agentTask, "--model", c.model, "--allowedTools", "Bash"},
			[]string{"ANTHROPIC_BASE_URL=" + c.url, "ANTHROPIC_API_KEY=" + c.secret, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1"}
	}},
	"codex": {"@openai/codex-PLATFORM*/vendor/*/bin/codex", "responses", func(t *testing.T, home string, c *customer) (args, env []string) {
		settings := "model = \"" + c.model + "\"\nmodel_provider = \"millrace\"\n[model_providers.millrace]\nname = \"Millrace\"\nbase_url = \"" + c.url +
			"/v1\"\nenv_key = \"MILLRACE_API_KEY\"\nwire_api = \"responses\"\n"
		writeFile(t, filepath.Join(home, "config.toml"), settings)
		// Its sandbox wants rights that containers lack; the only command is the test's own.
		return []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", agentTask},
			[]string{"CODEX_HOME=" + home, "MILLRACE_API_KEY=" + c.secret}
	}},
	"opencode": {"opencode-PLATFORM*/bin/opencode", "chat", func(t *testing.T, home string, c *customer) (args, env []string) {
		settings, err := json.Marshal(map[string]any{"provider": map[string]any{"millrace": map[string]any{
			"npm": "@ai-sdk/openai-compatible", "name": "Millrace",
			"options": map[string]string{"baseURL": c.url + "/v1", "apiKey": c.secret},
			"models":  map[string]any{c.model: map[string]string{"name": "Scripted"}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(home, "opencode.json"), string(settings))
		return []string{"run", "--model", "millrace/" + c.model, agentTask},
			[]string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
	}},
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// find gives the agent's program for this machine. Where there are several the last one asks least of the processor.
func (a agent) find(t *testing.T) string {
	t.Helper()
	dir, err := agents()
	if err != nil {
		t.Fatalf("the agents cannot be installed: %v", err)
	}
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	platform := runtime.GOOS + "-" + arch
	found, err := filepath.Glob(filepath.Join(dir, "node_modules", strings.ReplaceAll(a.program, "PLATFORM", platform)))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Skipf("SKIPPED: THIS AGENT IS NOT TESTED. npm has no program of it for %s (%s).", platform, a.program)
	}
	return slices.Max(found)
}

// run gives the agent the task in a home of its own, with nothing of this machine's environment but the path.
func (a agent) run(t *testing.T, program string, c *customer) (said string) {
	t.Helper()
	home := t.TempDir()
	args, env := a.prepare(t, home, c)
	ctx, cancel := context.WithTimeout(t.Context(), agentLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = home
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+home, "TMPDIR="+home)
	cmd.WaitDelay = soon // a child may hold its output open
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", filepath.Base(program), err, out.String(), failed.String())
	}
	return out.String()
}

// usageRow is a request in the export of usage.
type usageRow struct {
	Dialect, Ending string
	Status          int
	Output          int64 `json:"output_tokens"`
}

// billed lists the organization's rated requests.
func (c *customer) billed(t *testing.T) (rows []usageRow) {
	t.Helper()
	status, text := get(t, c.url+"/api/v1/orgs/"+c.org+"/exports/usage?format=jsonl", c.desk.Token)
	if status != http.StatusOK {
		t.Fatalf("export: %d %s", status, text)
	}
	for line := range strings.Lines(text) {
		var r usageRow
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		rows = append(rows, r)
	}
	return rows
}

// Coding agents, unmodified, finish a task with a tool: the model calls their shell, and tells what it printed.
func TestAgentsFinishAToolLoop(t *testing.T) {
	if !slow() {
		t.Skip("Claude Code, Codex and OpenCode, about 1 GB: run with MILLRACE_SLOW=1 (make test-slow)")
	}
	needNode(t)
	programs, engines, args := map[string]string{}, map[string]*scriptedEngine{}, []string{}
	for name, a := range codingAgents {
		t.Run("install "+name, func(t *testing.T) { programs[name] = a.find(t) })
		engines[name] = startScriptedEngine(t)
		args = append(args, "--attach", "acme/"+name+"="+engines[name].url+",engine=openai")
	}
	c := config(folder(t), args...)
	u := startUp(t, c)
	for name, a := range codingAgents {
		if programs[name] == "" {
			continue // said already
		}
		t.Run(name, func(t *testing.T) {
			mine, engine := newCustomer(t, u, "50"), engines[name]
			mine.model = "acme/" + name
			if said := a.run(t, programs[name], mine); !strings.Contains(said, engine.said()) {
				t.Errorf("it ended with %q, want %q", said, engine.said())
			}
			turns := engine.calls.Load() + engine.answers.Load()
			if engine.calls.Load() == 0 || engine.answers.Load() == 0 {
				t.Errorf("the engine called the shell %d times and had %d results", engine.calls.Load(), engine.answers.Load())
			}
			var rows []usageRow
			eventually(t, "every turn is billed", func() bool { rows = mine.billed(t); return int64(len(rows)) >= max(turns, 2) })
			for _, r := range rows {
				if r.Dialect != a.dialect || r.Ending != "complete" || r.Status != http.StatusOK || r.Output == 0 {
					t.Errorf("billed %+v", r)
				}
			}
			t.Logf("%d turns, billed %+v", turns, rows)
		})
	}
	stopUp(t, u)
	explained(t, c.Data)
}
