package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/engine/deepinfer"
	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/sim"
)

// deepInferIfAsked makes this process DeepInfer's adapter, as the agent's program is, or the engine behind it.
func deepInferIfAsked() bool {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	asked, err := deepinfer.RunIfAsked(ctx, os.Args[1:])
	if !asked && len(os.Args) > 1 && os.Args[1] == "sim-deepinfer" {
		var c sim.Contract
		var parser *kong.Kong
		if parser, err = kong.New(&c); err == nil {
			_, err = parser.Parse(os.Args[2:])
		}
		if err == nil {
			err = c.Run(ctx)
		}
		asked = true
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return asked
}

// An engine without HTTP is supervised as any other: its adapter and its program are one engine, proved by a token, whose ranks
// tell their blocks, and which is started again as a whole when its program dies.
func TestDeepInferIsSupervised(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "e") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b, unit := newBench(t, dir), ids.New()
	spec, err := json.Marshal(engine.Spec{Executable: os.Args[0] + " sim-deepinfer", ModelPath: "/w", Context: 4096, Parallel: engine.Parallel{Data: 2, Expert: 2},
		Extra: []string{"--speed", "0"}})
	if err != nil {
		t.Fatal(err)
	}
	b.Apply([]wire.Desired{{Unit: unit, Name: "flash", Generation: 1, Engine: string(engine.DeepInfer), Model: "flash", Wanted: "serving", Spec: spec}})
	before := b.ready(t, unit)
	place, refused := b.Enter(unit)
	if refused != "" {
		t.Fatal(refused)
	}
	d, err := engine.Lookup(engine.DeepInfer)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 2 {
		body := fmt.Sprintf(`{"model":"flash","max_tokens":2,"messages":[{"role":"user","content":"%d %s"}]}`, rank, strings.Repeat("the river flows past the mill ", 60))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+place.Address()+engine.ChatPath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(d.Caps().RankHeader, fmt.Sprint(rank))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		tokens, err := d.Tokens(t.Context(), http.DefaultClient, "http://"+place.Address(), []byte(body))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, err)
		}
		blocks := kvevent.ChainHashes("", tokens, d.BlockSize())
		until(t, "the blocks of a rank", func() bool { return b.board.holds(kvevent.OfRank(blocks[len(blocks)-1], rank)) })
		if b.board.holds(kvevent.OfRank(blocks[0], 1-rank)) {
			t.Errorf("rank %d's blocks are told of the other", rank)
		}
	}
	until(t, "the load of both ranks", func() bool { return len(b.board.load(unit).Ranks) == 2 })
	place.Leave(false)
	child := childOf(t, before.PID)
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "a new engine", func() bool {
		o := b.observed(unit)
		return o.State == wire.StateReady && o.PID != before.PID && o.Restarts == 1
	})
}
