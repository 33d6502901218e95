package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/serving/engine"
)

// Command lines of aggregated engines, one argument a line, and the files that go with them: what an operator will read in a
// process list must not change by accident. Set UPDATE_GOLDEN to write them anew.
func TestGoldenCommands(t *testing.T) {
	one := engine.Spec{Model: "acme/llama", ModelPath: "/weights/llama", Port: 9001, DataDir: "/d", Context: 131072, Slots: 128}
	events := one
	events.KVPort, events.ReplayPort, events.Queue, events.HostCache = 9002, 9003, 512, 64_000_000_000
	tensor := events
	tensor.Parallel = engine.Parallel{Tensor: 8, Pipeline: 2}
	expert := one
	expert.Model, expert.KVPort, expert.ReplayPort = "acme/deepseek", 9002, 9003
	expert.Parallel = engine.Parallel{Tensor: 8, Data: 8, Expert: 8}
	for name, spec := range map[string]engine.Spec{"one": one, "events": events, "tensor": tensor, "expert": expert} {
		for _, family := range []engine.Family{engine.VLLM, engine.SGLang, engine.TRTLLM} {
			c, err := driver(t, family).Command(spec)
			if err != nil {
				t.Fatal(err)
			}
			b := c.Path + "\n\t" + strings.Join(c.Args, "\n\t") + "\n"
			for _, e := range c.Env {
				b += e + "\n"
			}
			for _, f := range c.Files {
				b += "--- " + f.Path + "\n" + string(f.Data)
			}
			golden(t, string(family)+"-"+name+".txt", b)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "commands", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}
