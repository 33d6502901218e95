package fleetsim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/api/control"
	"millrace/cmd/millrace/trial"
)

// host is a simulated machine: an agent and what it runs.
type host struct {
	name, id string
	provider int // from 0
	region   string
	rack     string // failure domain
	dir      string // of its agent
	address  string // on which its engines meet others
	gpus     int
	arch     string
	memory   int64
	domain   string // scale-up domain; "" = the host
	agent    *trial.Process
}

const gib = 1 << 30

// describe writes the machine's hardware.
func (h *host) describe() error {
	inv := wire.Inventory{Hostname: h.name, CPUs: 64, MemoryBytes: 1 << 40, NICs: []wire.NIC{{Name: "eth0", Gbps: 400, Up: true, Address: h.address}}}
	for i := range h.gpus {
		inv.GPUs = append(inv.GPUs, wire.GPU{Index: i, UUID: fmt.Sprintf("GPU-%s-%d", h.name, i), Model: "simulated", Arch: h.arch, MemoryBytes: h.memory, Domain: h.domain})
	}
	text, err := json.Marshal(inv)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return err
	}
	// An agent's folder holds nothing of others.
	return os.WriteFile(h.inventory(), text, 0o600)
}

func (h *host) inventory() string { return h.dir + ".json" }

// startAgent starts a host's agent, which joins when it has not.
func (s *sim) startAgent(h *host) error {
	var env []string
	if h.id == "" {
		var token control.JoinToken
		if err := s.desk.Do(context.Background(), http.MethodPost, "/hosts/join-tokens", map[string]any{"name": h.name}, &token); err != nil {
			return err
		}
		env = append(env, "MILLRACE_JOIN="+token.Token)
	}
	env = append(env, "GOMAXPROCS=2", "MILLRACE_LOG_LEVEL=warn")
	program, args := s.net.agent(h.provider, []string{millrace, "agent", "--hub", s.hubURL, "--data", h.dir, "--inventory", h.inventory(), "--keep-engines", "--drain", "2s"})
	p, err := trial.StartProcess(program, args, env, nil)
	h.agent = p
	return err
}

// killHost is a power cut: the agent and its engines end at once.
func (s *sim) killHost(t *testing.T, h *host) {
	t.Helper()
	killEngines(h.dir)
	s.killAgent(t, h)
	killEngines(h.dir) // one that the agent was starting
}

func (s *sim) killAgent(t *testing.T, h *host) {
	t.Helper()
	if err := h.agent.Kill(); err != nil {
		t.Fatal(err)
	}
}

// restart starts a host's agent again and waits until it is heard of: what was known before says nothing.
func (s *sim) restart(t *testing.T, h *host) {
	t.Helper()
	begun := time.Now()
	if err := s.startAgent(h); err != nil {
		t.Fatal(err)
	}
	s.heard(t, []*host{h}, begun)
}

// heard waits until agents have reported since then.
func (s *sim) heard(t *testing.T, hosts []*host, since time.Time) {
	t.Helper()
	within(t, startLimit, "agents are heard of", func() string {
		var page control.Page[control.Host]
		if err := s.get("/hosts", &page); err != nil {
			return err.Error()
		}
		seen := map[string]bool{}
		for _, h := range page.Data {
			seen[h.Name] = h.Connected && h.SeenAt != nil && h.SeenAt.After(since)
		}
		for _, h := range hosts {
			if !seen[h.name] {
				return h.name + " is not heard of; it said last: " + h.agent.Said()
			}
		}
		return ""
	})
}

// engines lists the processes of a host's engines, whoever has started them, by unit. dir may be a pattern.
func engines(dir string) map[string]int {
	out := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(dir, "engines", "*.process.json"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has just gone
		}
		var r struct {
			PID         int
			Start, Unit string
		}
		if json.Unmarshal(text, &r) == nil && r.PID > 0 && startOf(r.PID) == r.Start {
			out[strings.ReplaceAll(r.Unit, "-", "")] = r.PID
		}
	}
	return out
}

func killEngines(dir string) {
	for _, pid := range engines(dir) {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // a group of its own
	}
}

// startOf is when a process began, in ticks; "" = it has ended.
func startOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	after := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(after) < 20 || after[0] == "Z" {
		return ""
	}
	return after[19]
}

// memory is what a process has in memory, in MiB, and the CPU time it took, in ticks.
func memory(pid int) (mib, ticks int64) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "RssAnon:"); ok { // the program's own pages are shared
			n, _ := strconv.ParseInt(strings.Fields(kb)[0], 10, 64)
			mib = n >> 10
		}
	}
	return mib, user + system
}
