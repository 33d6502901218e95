package engines

import (
	"net"
	"strings"
	"testing"

	"millrace/serving/engine"
)

func newPorts() *ports { return &ports{taken: map[int]bool{}} }

// Several engines beside each other: no port is given twice, whatever their families take without being told.
func TestPortsAreNotGivenTwice(t *testing.T) {
	p, seen := newPorts(), map[int]bool{}
	for i := range 30 {
		s := engine.Spec{Parallel: engine.Parallel{Data: 1 + i%4}}
		f := []engine.Family{engine.VLLM, engine.SGLang, engine.TRTLLM}[i%3]
		got, err := p.assign(f, &s, f != engine.TRTLLM)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range got {
			if seen[port] {
				t.Fatalf("port %d was given twice", port)
			}
			seen[port] = true
		}
		ranks := s.Parallel.Data
		if f == engine.SGLang && ranks > 1 && !seen[s.Port+sglangDelta+ranks] {
			t.Error("SGLang's own sockets are not reserved")
		}
		if f == engine.TRTLLM && (s.KVPort != 0 || s.ReplayPort != 0) {
			t.Error("ports for events that it does not publish")
		}
		if f == engine.VLLM {
			for rank := range ranks {
				if !seen[s.KVPort+rank] || !seen[s.ReplayPort+rank] {
					t.Errorf("rank %d of %d has no port for its events", rank, ranks)
				}
			}
		}
	}
}

// Two ranks, or two replicas, that placement gave one port would fail at random: here the second one waits for the first.
func TestPortsInTheFabricHaveOneOwner(t *testing.T) {
	p := newPorts()
	spec := func(port int) *engine.Spec {
		return &engine.Spec{Parallel: engine.Parallel{Tensor: 4, Data: 2}, Transfer: &engine.Transfer{Backend: "nixl", Port: port}}
	}
	first, err := p.assign(engine.VLLM, spec(17000), false)
	if err != nil || len(first) != 1+8 {
		t.Fatalf("%v, %v", first, err)
	}
	second, err := p.assign(engine.VLLM, spec(17007), false)
	if err == nil || !strings.Contains(err.Error(), "17007") {
		t.Errorf("overlapping side channels: %v", err)
	}
	p.give(second)
	p.give(first)
	if _, err = p.assign(engine.VLLM, spec(17007), false); err != nil {
		t.Error(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	s := spec(0)
	s.Nodes = engine.Nodes{Count: 2, Port: busy.Addr().(*net.TCPAddr).Port}
	if _, err := p.assign(engine.VLLM, s, false); err == nil {
		t.Error("a port on which somebody listens")
	}
	s.Nodes.Rank = 1 // it only dials
	if _, err := p.assign(engine.VLLM, s, false); err != nil {
		t.Error(err)
	}
}

// An engine over several hosts whose ranks' transfer ports reach over its meeting place does not wait for itself, and another
// one still waits for it.
func TestAnEnginesOwnPortsMayOverlap(t *testing.T) {
	p := newPorts()
	spec := func(base int) *engine.Spec {
		return &engine.Spec{Parallel: engine.Parallel{Data: 16}, Nodes: engine.Nodes{Count: 4, Port: base + 1}, Transfer: &engine.Transfer{Backend: "nixl", Port: base}}
	}
	got, err := p.assign(engine.Sim, spec(17100), false)
	if err != nil || len(got) != 1+4 {
		t.Fatalf("%v, %v", got, err)
	}
	if _, err := p.assign(engine.Sim, spec(17103), false); err == nil || !strings.Contains(err.Error(), "17103") {
		t.Errorf("another engine's port: %v", err)
	}
}
