package sim_test

import (
	"testing"

	"github.com/alecthomas/kong"

	"millrace/serving/engine"
	"millrace/serving/engine/sim"
)

// The driver's command line is one that the flags understand, and the flags' defaults are the code's.
func TestTheDriversCommandIsUnderstood(t *testing.T) {
	d, err := engine.Lookup(engine.Sim)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Command(engine.Spec{Executable: "millrace", Model: "m", Port: 9, KVPort: 10, ReplayPort: 11, Context: 500, Slots: 3,
		Extra: []string{"--speed=0", "--faults", "--cost-b1", "7"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{c.Args[1:], nil} {
		var got sim.Config
		parser, err := kong.New(&got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(args); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		want := sim.Config{Port: 8000, Personality: "vllm", Model: "sim", Context: sim.DefaultContext, Slots: sim.DefaultSlots, BatchTokens: sim.DefaultBatchTokens,
			Queue: sim.DefaultQueue, Ranks: 1, BlockSize: sim.DefaultBlockSize, Speed: 1, KVTopic: "kv-events", Cost: sim.DefaultCost,
			Role: "whole", Lease: sim.DefaultLease, PeerWait: sim.DefaultPeerWait}
		if args != nil {
			want.Port, want.Model, want.Context, want.Slots, want.Speed, want.Faults, want.Cost.B1 = 9, "m", 500, 3, 0, true, 7
			want.KVEndpoint, want.ReplayEndpoint = "tcp://127.0.0.1:10", "tcp://127.0.0.1:11"
		}
		if got != want {
			t.Errorf("%q:\n%+v\n%+v", args, got, want)
		}
	}
}
