package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"millrace/serving/engine/deepinfer"
	"millrace/serving/engine/sim"
)

// simEngineCmd runs the simulated engine: an OpenAI-compatible server with real batching, caching and metrics, and
// made-up text.
type simEngineCmd struct {
	sim.Config
	Canned string `help:"Answer fixed bytes as cheaply as possible, for benches: no batching, cache or KV events; on bare connections or through net/http." enum:",bare,http" default:"" hidden:""`
}

func (c *simEngineCmd) Run(ctx context.Context) error {
	if c.Canned != "" {
		raw := rawUpstreamCmd{Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)), RawConfig: sim.RawConfig{HTTP: c.Canned == "http"}}
		return raw.Run(ctx)
	}
	e, err := sim.New(c.Config)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "simulated engine: model %s on http://%s\n", c.Model, ln.Addr())
	return e.Serve(ctx, ln)
}

// simDeepInferCmd is a simulated engine behind the adapter of DeepInfer: it takes that contract's arguments.
type simDeepInferCmd struct{ sim.Contract }

func (c *simDeepInferCmd) Run(ctx context.Context) error { return c.Contract.Run(ctx) }

// deepInferAdapterCmd is the adapter, for agents that are this program.
type deepInferAdapterCmd struct {
	Args []string `arg:"" optional:""`
}

func (c *deepInferAdapterCmd) Run(ctx context.Context) error { return deepinfer.Run(ctx, c.Args) }

// rawUpstreamCmd answers fixed bytes as cheaply as possible: the upstream of the gateway bench.
type rawUpstreamCmd struct {
	Listen string `help:"Loopback address." default:"127.0.0.1:0"`
	sim.RawConfig
}

func (c *rawUpstreamCmd) Run(ctx context.Context) error {
	raw, err := sim.NewRaw(c.RawConfig)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "raw upstream on http://%s\n", ln.Addr())
	if err := raw.Serve(ctx, ln); ctx.Err() == nil {
		return err
	}
	return nil
}
