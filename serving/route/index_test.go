package route

import (
	"testing"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"pgregory.net/rapid"
)

// The index agrees with plain sets per unit under any order of stores, removes, resets and restarts.
func TestIndexMatchesAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, units := newIndexes(), make([]ids.ID, 5)
		model, seq := map[ids.ID]map[uint64]bool{}, map[ids.ID]int64{}
		req := Request{BlockSize: 16}
		for i := range units {
			units[i] = ids.New()
			req.Candidates = append(req.Candidates, Candidate{Unit: units[i]})
			x.apply(&wire.KV{Unit: units[i], Engine: units[i], Reset: true})
			model[units[i]] = map[uint64]bool{}
		}
		block := rapid.Uint64Range(1, 12)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			u := rapid.SampledFrom(units).Draw(t, "unit")
			kv := &wire.KV{Unit: u, Engine: u, Stored: rapid.SliceOfN(block, 0, 6).Draw(t, "stored"),
				Removed: rapid.SliceOfN(block, 0, 3).Draw(t, "removed"), Reset: rapid.IntRange(0, 9).Draw(t, "reset") == 0}
			seq[u]++
			kv.Seq = seq[u]
			if kv.Reset {
				model[u], kv.Removed = map[uint64]bool{}, nil
			}
			for _, h := range kv.Removed {
				delete(model[u], h)
			}
			for _, h := range kv.Stored {
				model[u][h] = true
			}
			if !x.apply(kv) {
				t.Fatal("in-order events asked for a snapshot")
			}
		}
		req.Hashes = rapid.SliceOfN(block, 1, 8).Draw(t, "prompt")
		for i, got := range x.match(&req) {
			n := 0
			for n < len(req.Hashes) && model[units[i]][req.Hashes[n]] {
				n++
			}
			if got != int64(n)*16 {
				t.Fatalf("unit %d: %d tokens, model says %d blocks", i, got, n)
			}
		}
		for _, u := range units {
			x.forget(u, ids.Nil)
		}
		if len(x.exact) != 0 || x.used != 0 {
			t.Fatalf("%d blocks left behind", len(x.exact))
		}
	})
}

func BenchmarkMatchLongPrompt(b *testing.B) {
	x, req := newIndexes(), Request{BlockSize: 16, Hashes: chain(6250)} // 100,000 tokens
	for range 8 {
		u := ids.New()
		req.Candidates = append(req.Candidates, Candidate{Unit: u})
		x.apply(&wire.KV{Unit: u, Engine: u, Reset: true, Stored: req.Hashes})
	}
	b.ReportAllocs()
	for b.Loop() {
		x.match(&req)
	}
}

func BenchmarkPick(b *testing.B) {
	f := newBench(8)
	req := f.request(chain(64)...)
	f.store(f.units[3], 1, req.Hashes...)
	b.ReportAllocs()
	for b.Loop() {
		k, _ := f.Pick(req)
		k.Done(OK, 0)
	}
}
