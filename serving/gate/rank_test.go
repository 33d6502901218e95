package gate_test

import (
	"strings"
	"testing"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/tok"
	"millrace/serving/gate/gatetest"
)

// An engine with several data-parallel ranks is told which one holds the prompt; a client may not say.
func TestTheRankThatHoldsAPromptIsNamed(t *testing.T) {
	engines := []*gatetest.Engine{gatetest.NewEngine(t, gatetest.Stream(good)), gatetest.NewEngine(t, gatetest.Stream(good))}
	s := gatetest.New(t, gatetest.Options{})
	units := place(t, s, engine.Sim, engines...)
	s.Router.Apply(wire.Fact{Load: &wire.Load{Unit: units[1], Engine: units[1], State: wire.StateReady, Ranks: []wire.RankLoad{{Rank: 0}, {Rank: 1}, {Rank: 2}}}})
	body := strings.Replace(request(streamed), "hello there", strings.Repeat("the river flows past the mill ", 100), 1)
	tokens, err := tok.ApplyChat([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	salt := gatetest.Salts{}.CacheSalt(ids.Format(ids.Org, s.Caller.Org))
	d, _ := engine.Lookup(engine.Sim)
	blocks := kvevent.ChainHashes(salt, tokens, d.BlockSize())
	for i, h := range blocks {
		blocks[i] = kvevent.OfRank(h, 2)
	}
	s.Router.Apply(wire.Fact{KV: &wire.KV{Unit: units[1], Engine: units[1], Reset: true, BlockSize: d.BlockSize(), Stored: blocks}})
	for _, name := range []string{"data_parallel_rank", "routed_dp_rank"} {
		if answer, text, _ := post(t, s, strings.Replace(body, `{`, `{"`+name+`":1,`, 1)); answer.StatusCode != 400 {
			t.Errorf("%s: %d %s", name, answer.StatusCode, text)
		}
	}
	if answer, text, _ := post(t, s, body); answer.StatusCode != 200 {
		t.Fatalf("%d %s", answer.StatusCode, text)
	}
	head, _ := engines[1].Last()
	if got := head.Get(d.Caps().RankHeader); got != "2" {
		t.Errorf("rank %q", got)
	}
}
