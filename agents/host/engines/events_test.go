package engines

import (
	"encoding/json"
	"testing"

	"millrace/agents/internal/testengine"
	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
)

// Each rank of an engine publishes at a port of its own, and what it holds is told as that rank's.
func TestRanksOfAnEngineTellTheirOwnBlocks(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	d := testengine.Desired(unit)
	var spec engine.Spec
	if err := json.Unmarshal(d.Spec, &spec); err != nil {
		t.Fatal(err)
	}
	spec.Parallel.Data = 3
	d.Spec, _ = json.Marshal(spec)
	b.Apply([]wire.Desired{d})
	b.ready(t, unit)
	for range 3 {
		if err := b.ask(t, unit, 1); err != nil {
			t.Fatal(err)
		}
	}
	for rank := range 3 {
		block := testengine.Block(uint32(rank + 1))
		until(t, "the rank's block", func() bool { return b.board.holds(kvevent.OfRank(block, rank)) })
		if b.board.holds(kvevent.OfRank(block, (rank+1)%3)) {
			t.Errorf("rank %d's block is told of another", rank)
		}
	}
}

// A shard that is not its replica's first answers no HTTP: it is ready as soon as it runs, and nobody asks it anything.
func TestAShardThatAnswersNothingIsReady(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	d := testengine.Desired(unit, testengine.NeverReady)
	var spec engine.Spec
	if err := json.Unmarshal(d.Spec, &spec); err != nil {
		t.Fatal(err)
	}
	head := ids.New()
	spec.Nodes, spec.Head = engine.Nodes{Count: 2, Rank: 1, Master: "127.0.0.1", Port: 1}, ids.Format(ids.Unit, head)
	d.Spec, _ = json.Marshal(spec)
	b.Apply([]wire.Desired{d})
	if o := b.ready(t, unit); !alive(o.PID) {
		t.Errorf("%+v", o)
	}
	b.board.mu.Lock()
	defer b.board.mu.Unlock()
	if b.board.head != head {
		t.Errorf("its blocks are told of %v, its replica's first is %v", b.board.head, head)
	}
}

// Ports of ranks are side by side, and engines of one host never share one.
func TestPortsOfRanksAreTheirOwn(t *testing.T) {
	p := ports{taken: map[int]bool{}}
	seen := map[int]bool{}
	for range 50 {
		got, err := p.take(16)
		if err != nil {
			t.Fatal(err)
		}
		for i, port := range got {
			if port != got[0]+i || seen[port] || port < firstPort || port > lastPort {
				t.Fatalf("%v, of which some were given before", got)
			}
			seen[port] = true
		}
	}
}
