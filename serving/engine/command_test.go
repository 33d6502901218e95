package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/serving/engine"
)

// topology is one way to run an engine, and which engines can.
type topology struct {
	name string
	spec func(f engine.Family) engine.Spec
	not  []engine.Family // that have no way to
}

var everyEngine = []engine.Family{engine.VLLM, engine.SGLang, engine.TRTLLM}

// topologies are the roles and shapes that recipes can ask for.
var topologies = []topology{
	{name: "one", spec: func(engine.Family) engine.Spec { return plain() }},
	{name: "tensor", spec: func(engine.Family) engine.Spec {
		s := withPorts(plain())
		s.Queue, s.HostCache, s.Drain, s.Devices = 512, 64_000_000_000, 45, []int{0, 1, 2, 3, 4, 5, 6, 7}
		s.Parallel = engine.Parallel{Tensor: 4, Pipeline: 2}
		return s
	}},
	{name: "attention-data", spec: func(engine.Family) engine.Spec { return experts(plain(), 8) }},
	{name: "elastic", spec: func(engine.Family) engine.Spec {
		s := experts(plain(), 4)
		s.Elastic, s.Sleep = 8, true
		return s
	}},
	{name: "prefill", spec: func(f engine.Family) engine.Spec { return role(plain(), f, engine.Prefill) }},
	{name: "decode", spec: func(f engine.Family) engine.Spec { return role(plain(), f, engine.Decode) }},
	{name: "decode-experts-hosttier", spec: func(f engine.Family) engine.Spec {
		s := role(experts(plain(), 8), f, engine.Decode)
		s.HostCache, s.Transfer.Apart = 128<<30, true
		return s
	}},
	{name: "encoder", spec: func(f engine.Family) engine.Spec {
		s := role(plain(), f, engine.Encoder)
		s.Devices = []int{6}
		return s
	}},
	{name: "prefill-after-encoder", not: []engine.Family{engine.TRTLLM}, spec: func(f engine.Family) engine.Spec {
		s := role(plain(), f, engine.Prefill)
		s.Vision, s.Encoders = true, []string{"http://10.0.0.9:30000"}
		return s
	}},
	{name: "rack-rank0", not: []engine.Family{engine.TRTLLM}, spec: func(f engine.Family) engine.Spec { return rack(f, 0) }},
	{name: "rack-rank5", not: []engine.Family{engine.TRTLLM}, spec: func(f engine.Family) engine.Spec { return rack(f, 5) }},
	{name: "tensor-over-hosts", not: []engine.Family{engine.TRTLLM}, spec: func(engine.Family) engine.Spec {
		s := plain()
		s.Parallel, s.Address, s.Interface = engine.Parallel{Tensor: 16}, "10.0.0.6", "eth1"
		s.Nodes = engine.Nodes{Count: 2, Rank: 1, Master: "10.0.0.5", Port: 23001}
		return s
	}},
	{name: "features", not: []engine.Family{engine.TRTLLM}, spec: func(engine.Family) engine.Spec {
		s := plain()
		s.Deterministic, s.Speculative = true, &engine.Speculative{Method: "eagle3", Draft: 3, Model: "acme/draft"}
		s.LoRA = &engine.LoRA{Max: 4, Rank: 64, Adapters: []engine.Adapter{{Name: "law", Path: "/adapters/law"}, {Name: "med", Path: "/adapters/med"}}}
		s.Env = map[string]string{"B": "2", "A": "1"}
		return s
	}},
	{name: "adapters-on-ranks", not: []engine.Family{engine.TRTLLM}, spec: func(engine.Family) engine.Spec {
		s := experts(plain(), 2)
		s.LoRA = &engine.LoRA{Max: 1}
		return s
	}},
	{name: "nextn", spec: func(engine.Family) engine.Spec {
		s := plain()
		s.Speculative = &engine.Speculative{Method: "nextn", Draft: 3}
		return s
	}},
	{name: "mooncake-prefill", not: []engine.Family{engine.TRTLLM}, spec: func(f engine.Family) engine.Spec { return over(f, "mooncake", "push", engine.Prefill) }},
	{name: "mooncake-decode", not: []engine.Family{engine.TRTLLM}, spec: func(f engine.Family) engine.Spec { return over(f, "mooncake", "push", engine.Decode) }},
	{name: "nixl-push-prefill", spec: func(f engine.Family) engine.Spec { return over(f, "nixl", "push", engine.Prefill) }},
}

func plain() engine.Spec {
	return engine.Spec{Model: "acme/llama", ModelPath: "/weights/llama", Port: 9001, DataDir: "/d", Context: 131072, Slots: 128}
}

func withPorts(s engine.Spec) engine.Spec {
	s.KVPort, s.ReplayPort = 9010, 9050
	return s
}

func experts(s engine.Spec, n int) engine.Spec {
	s = withPorts(s)
	s.Parallel = engine.Parallel{Data: n, Expert: n}
	return s
}

func role(s engine.Spec, f engine.Family, r string) engine.Spec {
	backend := map[engine.Family]string{engine.VLLM: "nixl", engine.SGLang: "mooncake", engine.TRTLLM: "ucx"}[f]
	s.Role, s.Address, s.Interface, s.RDMA, s.Devices = r, "10.0.0.5", "eth1", []string{"mlx5_0", "mlx5_1"}, []int{0, 1, 2, 3}
	if s.Parallel == (engine.Parallel{}) {
		s.Parallel = engine.Parallel{Tensor: 4}
	}
	s = withPorts(s)
	s.Transfer = &engine.Transfer{Backend: backend, Port: engine.TransferPort(f, backend, 23000), Engine: "e-1"}
	return s
}

func over(f engine.Family, backend, mode, r string) engine.Spec {
	s := role(plain(), f, r)
	s.Transfer = &engine.Transfer{Backend: backend, Mode: mode, Port: engine.TransferPort(f, backend, 23000), Engine: "e-1", Switch: true}
	return s
}

// rack is a shard of 64 ranks over 16 hosts.
func rack(f engine.Family, rank int) engine.Spec {
	s := role(experts(plain(), 64), f, engine.Decode)
	s.Nodes = engine.Nodes{Count: 16, Rank: rank, Master: "10.0.0.5", Port: engine.MasterPort(23000)}
	s.Address = "10.0.0.5"
	if rank > 0 {
		s.Address = "10.0.0.10"
	}
	return s
}

// Command lines by role and shape, one argument a line, and the files that go with them: what an operator will read in a
// process list must not change by accident. Set UPDATE_GOLDEN to write them anew.
func TestGoldenCommands(t *testing.T) {
	for _, top := range topologies {
		for _, family := range everyEngine {
			c, err := driver(t, family).Command(top.spec(family))
			if cannot := slices.Contains(top.not, family); cannot != errors.Is(err, engine.ErrUnsupported) || !cannot && err != nil {
				t.Errorf("%s %s: %v", family, top.name, err)
			}
			if err == nil {
				golden(t, string(family)+"-"+top.name+".txt", written(c))
			}
		}
	}
}

func written(c engine.Command) string {
	b := c.Path + "\n\t" + strings.Join(c.Args, "\n\t") + "\n"
	for _, e := range c.Env {
		b += e + "\n"
	}
	if c.Host != "" {
		b += "listens on " + c.Host + "\n"
	}
	for _, f := range c.Files {
		b += "--- " + f.Path + "\n" + string(f.Data)
	}
	return b
}

// DeepInfer's engine is started by its adapter, but for the hosts that are not its first.
func TestGoldenDeepInfer(t *testing.T) {
	one := experts(plain(), 8)
	one.Agent, one.Devices, one.Deterministic = "/usr/bin/millrace-agent", []int{0, 1, 2, 3, 4, 5, 6, 7}, true
	one.Speculative = &engine.Speculative{Method: "nextn", Draft: 3}
	npu := one
	npu.Ascend, npu.Executable, npu.Extra = true, "python3 /opt/engine.py", []string{"--device", "npu"}
	for name, s := range map[string]engine.Spec{"one": one, "ascend": npu, "rack-rank0": deepInferRack(0), "rack-rank5": deepInferRack(5)} {
		c, err := driver(t, engine.DeepInfer).Command(s)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "deepinfer-"+name+".txt", written(c))
	}
	for what, change := range map[string]func(*engine.Spec){
		"a role":   func(s *engine.Spec) { s.Role, s.Transfer = engine.Prefill, &engine.Transfer{Backend: "adapter"} },
		"adapters": func(s *engine.Spec) { s.LoRA = &engine.LoRA{Max: 1} },
		"eagle":    func(s *engine.Spec) { s.Speculative = &engine.Speculative{Method: "eagle", Draft: 3} },
	} {
		s := one
		change(&s)
		if _, err := driver(t, engine.DeepInfer).Command(s); !errors.Is(err, engine.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func deepInferRack(rank int) engine.Spec {
	s := rack(engine.DeepInfer, rank)
	s.Role, s.Transfer, s.Agent = "", nil, "/usr/bin/millrace-agent"
	s.Speculative = &engine.Speculative{Method: "nextn", Draft: 3}
	return s
}

// What an engine cannot do is refused when it is to be started, not found out by its first request.
func TestCommandsThatCannotBe(t *testing.T) {
	alone := role(plain(), engine.VLLM, engine.Prefill)
	alone.Transfer = nil
	elastic := plain()
	elastic.Elastic, elastic.Parallel = 4, engine.Parallel{Data: 2, Pipeline: 2}
	lost := rack(engine.VLLM, 3)
	lost.Nodes.Master = ""
	bare := plain()
	bare.Port, bare.Env = 0, map[string]string{"HF_TOKEN": "hf_secret"}
	for what, c := range map[string]struct {
		family      engine.Family
		spec        engine.Spec
		unsupported bool
	}{
		"no port":                     {engine.VLLM, bare, false},
		"prefill without a hand-over": {engine.VLLM, alone, false},
		"no first host":               {engine.VLLM, lost, false},
		"a foreign connector":         {engine.VLLM, over(engine.VLLM, "ucx", "", engine.Decode), true},
		"elastic pipelines":           {engine.VLLM, elastic, true},
		"ucx on SGLang":               {engine.SGLang, over(engine.SGLang, "ucx", "", engine.Decode), true},
		"mooncake on TensorRT-LLM":    {engine.TRTLLM, over(engine.TRTLLM, "mooncake", "", engine.Decode), true},
	} {
		if _, err := driver(t, c.family).Command(c.spec); err == nil || errors.Is(err, engine.ErrUnsupported) != c.unsupported || strings.Contains(err.Error(), "hf_secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Ranks on a replica's hosts are those that the engine numbers.
func TestRanksOfHosts(t *testing.T) {
	s := rack(engine.VLLM, 5)
	if first, n := s.Ranks(); first != 20 || n != 4 {
		t.Errorf("%d, %d", first, n)
	}
	s.Parallel = engine.Parallel{Tensor: 64} // no rank is whole on a host
	if first, n := s.Ranks(); first != 0 || n != 1 {
		t.Errorf("%d, %d", first, n)
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
