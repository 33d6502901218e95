package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/cmd/millrace/trial"
)

// proc is a process as the kernel shows it.
type proc struct {
	pid, parent int
	command     string
}

// processes lists what runs now.
func processes(t testing.TB) (all []proc) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		stat, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue // it has ended
		}
		line, _ := os.ReadFile(d + "/cmdline")
		rest := stat[bytes.LastIndexByte(stat, ')')+1:]
		var state string
		p := proc{command: strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))}
		if _, err := fmt.Sscan(string(rest), &state, &p.parent); err != nil || state == "Z" {
			continue
		}
		p.pid, _ = strconv.Atoi(filepath.Base(d))
		all = append(all, p)
	}
	return all
}

// family is a process's children, of a kind that their command tells.
func family(t testing.TB, parent int, kind string) (pids []int) {
	t.Helper()
	for _, p := range processes(t) {
		if p.parent == parent && strings.Contains(p.command, kind) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// household is everything that an `up` runs.
type household struct{ agents, engines, database []int }

func householdOf(t testing.TB, u *trial.Up) (h household) {
	t.Helper()
	h.agents, h.database = family(t, u.PID, " agent "), family(t, u.PID, "postgres")
	for _, a := range h.agents {
		h.engines = append(h.engines, family(t, a, " sim-engine ")...)
	}
	if len(h.agents) != 2 || len(h.engines) != 2 || len(h.database) != 1 {
		t.Fatalf("%+v", h)
	}
	return h
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// ended waits until all are gone.
func ended(t testing.TB, pids []int) {
	t.Helper()
	eventually(t, "processes end", func() bool { return !slices.ContainsFunc(pids, alive) })
}

// Ctrl-C ends in order: a running answer comes whole while nobody new is let in, then agents and engines go, then the
// database; nothing stays behind, and what was served is billed.
func TestCtrlCEndsInOrder(t *testing.T) {
	c := config(folder(t))
	u := startUp(t, c)
	mine := newCustomer(t, u, "5")
	h := householdOf(t, u)
	answer := make(chan trial.Answer, 1)
	go func() { answer <- mine.chat(trial.Ask{Prompt: "take your time", MaxTokens: 400, Stream: true}) }()
	eventually(t, "the answer runs", func() bool { return running(mine, t) > 0 })
	if err := u.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody new is let in", func() bool { return !mine.chat(trial.Ask{Prompt: "me too", MaxTokens: 5}).Whole })
	for name, pids := range map[string][]int{"agents": h.agents, "engines": h.engines, "database": h.database} {
		if !alive(pids[0]) {
			t.Errorf("%s ended before the running answer", name)
		}
	}
	got := <-answer
	if !got.Whole || got.Usage.Completion != 400 {
		t.Errorf("the running answer was cut: %v, %d tokens", got.Err, got.Tokens)
	}
	served := append(h.agents, h.engines...)
	eventually(t, "agents and engines end", func() bool {
		gone := !slices.ContainsFunc(served, alive)
		if !gone && !alive(h.database[0]) {
			t.Fatal("the database ended before the agents and their engines")
		}
		return gone
	})
	ended(t, h.database)
	stopUp(t, u)
	if code, err := u.Wait(t.Context()); code != 0 || err != nil {
		t.Errorf("exit code %d, %v\n%s", code, err, u.Said())
	}
	u = startUp(t, c)
	mine.url, mine.desk.URL = u.Ready.URL, u.Ready.URL
	agrees(t, got, mine.bill(t, got.Request))
}

// running is how many requests the engines say they compute.
func running(c *customer, t testing.TB) (n int) {
	t.Helper()
	for _, u := range units(c, t) {
		n += u.Running
	}
	return n
}

// A second ctrl-C ends at once.
func TestASecondCtrlCEndsAtOnce(t *testing.T) {
	u := startUp(t, config(folder(t)))
	mine := newCustomer(t, u, "5")
	h := householdOf(t, u)
	answer := make(chan trial.Answer, 1)
	go func() { answer <- mine.chat(trial.Ask{Prompt: "take a minute", MaxTokens: 10_000, Stream: true}) }()
	eventually(t, "the answer runs", func() bool { return running(mine, t) > 0 })
	for range 2 {
		if err := u.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // two signals at once are one
	}
	select {
	case <-u.Done():
	case <-time.After(soon):
		t.Fatal("it goes on")
	}
	if got := <-answer; got.Whole {
		t.Error("it waited for the answer")
	}
	ended(t, slices.Concat(h.agents, h.engines, h.database))
}

// After kill -9 nothing stays, and nothing hinders the next start.
func TestKillLeavesNothingBehind(t *testing.T) {
	c := config(folder(t))
	u := startUp(t, c)
	mine := newCustomer(t, u, "5")
	got := mine.must(t, trial.Ask{Prompt: "before the end", MaxTokens: 30})
	h := householdOf(t, u)
	if err := u.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	u = startUp(t, c)
	t.Logf("ready again after %v", time.Since(began).Round(time.Millisecond))
	ended(t, slices.Concat(h.agents, h.engines, h.database))
	mine.url, mine.desk.URL = u.Ready.URL, u.Ready.URL
	agrees(t, got, mine.bill(t, got.Request))
	mine.must(t, trial.Ask{Prompt: "after it", MaxTokens: 5})
}
