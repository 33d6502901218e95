package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

// Contract is the arguments that an engine behind DeepInfer's adapter takes (docs/deepinfer-adapter.md), and a few of the
// simulation's own.
type Contract struct {
	Socket         string  `help:"Unix socket to listen on." required:""`
	ModelPath      string  `help:"Weights; not read." required:""`
	EP             int     `name:"ep" help:"GPUs that share the experts." default:"1"`
	DP             int     `name:"dp" help:"Data-parallel ranks of the attention." default:"1"`
	TP             int     `name:"tp" help:"GPUs that share each layer." default:"1"`
	Nextn          int     `help:"Tokens drafted ahead." default:"0"`
	Deterministic  bool    `help:"The same request gives the same tokens, as it always does here."`
	Context        int     `help:"Tokens of prompt and answer together." default:"131072"`
	Slots          int     `help:"Most requests computed at once." default:"256"`
	Queue          int     `help:"Most requests waiting." default:"65536"`
	KVEndpoint     string  `name:"kv-endpoint" help:"Where KV events of rank 0 go."`
	ReplayEndpoint string  `help:"Where rank 0 answers replay requests."`
	Nnodes         int     `help:"Hosts of the engine." default:"1"`
	NodeRank       int     `help:"This host's rank: only the first listens." default:"0"`
	Master         string  `help:"Where the first host gathers the others."`
	Speed          float64 `help:"Simulated seconds per second; 0 = as fast as possible." default:"1"`
	Seed           uint64  `help:"Changes the answers." default:"0"`
	Faults         bool    `help:"Allow faults to be set at POST /sim/faults."`
}

// Run is the engine's life.
func (c *Contract) Run(ctx context.Context) error {
	if c.NodeRank > 0 { // nothing here to compute with
		<-ctx.Done()
		return nil
	}
	e, err := New(Config{Personality: "deepinfer", Model: "raw", AnyModel: true, Context: c.Context, Slots: c.Slots, Queue: c.Queue, BlockSize: deepInferBlock,
		Ranks: max(c.DP/max(c.Nnodes, 1), 1), ExpertSize: c.EP, Speed: c.Speed, Seed: c.Seed, Faults: c.Faults,
		KVEndpoint: c.KVEndpoint, ReplayEndpoint: c.ReplayEndpoint})
	if err != nil {
		return err
	}
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sim: %w", err)
	}
	ln, err := net.Listen("unix", c.Socket)
	if err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	return e.Serve(ctx, ln)
}

// deepInferBlock is the contract's, in tokens.
const deepInferBlock = 64
