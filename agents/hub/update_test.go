package hub

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/agents/host/agentcmd"
	"millrace/agents/release"
	"millrace/agents/wire"
)

// A program of the agent is this test's program with a version behind its end: the kernel does not mind.
const (
	versionMark = "\nversion of this program: "
	deaf        = "v3-deaf" // never reaches its hub
)

func builtProgram(t *testing.T, version string) string {
	t.Helper()
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "millrace-agent-"+version)
	if err := os.WriteFile(path, append(self, versionMark+version...), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// runCommand is the agent with its command line.
func runCommand(text string) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	c := agentcmd.Command{}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	if at := bytes.LastIndex(self, []byte(versionMark)); at >= 0 {
		c.Version = string(self[at+len(versionMark):])
	}
	if c.Version == deaf {
		c.Hub = "https://127.0.0.1:1"
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 4})))
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := c.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// An agent follows its channel, engines and all; what does not reach the hub, or does not even live, is taken back.
func TestAnAgentUpdatesItself(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	releases := t.TempDir()
	b := newBench(t)
	b.programs = release.Open(releases)
	b.start()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	publish := func(version, program string, key ed25519.PrivateKey) {
		t.Helper()
		if err := release.Publish(releases, "stable", version, platform, program, key); err != nil {
			t.Fatal(err)
		}
		b.exec(`UPDATE hosts SET generation = generation + 1`) // the offer need not wait for the next sync
	}
	unit := b.place("h", "u")
	cfg := b.keeper(b.token("h"))
	installed := builtProgram(t, "v1")
	start := func() *process {
		text, err := json.Marshal(agentcmd.Command{Hub: cfg.Hub, Join: cfg.Join, Data: cfg.Data, DataListen: cfg.DataListen, KeepEngines: true,
			Channel: "stable", ReleaseKey: base64.StdEncoding.EncodeToString(public), Trial: 5 * time.Second, Drain: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return b.execute(installed, "HUB_TEST_COMMAND="+string(text))
	}
	p := start()
	b.untilState(unit, wire.StateReady)
	engine := b.running("h", unit).PID
	runs := func(version, trouble string) {
		t.Helper()
		until(t, "version "+version, func() bool {
			o := b.host("h").Observed
			return o.AgentVersion == version && strings.HasPrefix(o.UpdateError, trouble) && (trouble != "" || o.UpdateError == "")
		})
		b.untilState(unit, wire.StateReady)
		if now := b.running("h", unit); now.PID != engine || now.Restarts != 0 {
			t.Errorf("the engine is another one: %+v, was %d", now, engine)
		}
	}
	runs("v1", "")
	_, foreign, _ := ed25519.GenerateKey(nil)
	publish("v2-foreign", builtProgram(t, "v2-foreign"), foreign) // and never runs
	publish("v2", builtProgram(t, "v2"), key)
	runs("v2", "")
	publish(deaf, builtProgram(t, deaf), key)
	runs("v2", deaf+" was taken back: it did not reach the hub in time")
	script := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	publish("v4", script, key)
	if err := <-p.ended; err == nil {
		t.Error("a program that dies ended well")
	}
	again := start() // by the service manager
	runs("v2", "v4 was taken back: it ended before")
	publish("v5", builtProgram(t, "v5"), key)
	runs("v5", "")
	left, err := os.ReadDir(filepath.Join(cfg.Data, "programs"))
	if err != nil || len(left) != 2 {
		t.Errorf("programs kept: %v, %v", left, err)
	}
	b.stopEngines("h")
	_ = again.stdin.Close()
	if err := <-again.ended; err != nil {
		t.Error(err)
	}
}
