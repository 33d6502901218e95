package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"millrace/cmd/millrace/up"
)

type upCmd struct {
	Data          string   `help:"Data folder; default: /var/lib/millrace for root, else the user's state folder." placeholder:"DIR" env:"MILLRACE_DATA"`
	Listen        string   `help:"Address of console, control API and inference." default:"127.0.0.1:8080" env:"MILLRACE_LISTEN"`
	AgentListen   string   `help:"Address that agents dial (TLS)." default:"127.0.0.1:0" env:"MILLRACE_AGENT_LISTEN"`
	MetricsListen string   `help:"Address of metrics and profiles." default:"127.0.0.1:0" env:"MILLRACE_METRICS_LISTEN"`
	ReadyFile     string   `help:"Write addresses and secrets here (mode 0600) once everything serves." placeholder:"FILE"`
	Fresh         bool     `help:"Remove everything in the data folder first."`
	Attach        []string `help:"Serve an engine that already runs: NAME=URL,engine=vllm[,model=UPSTREAM][,key-env=VAR][,context=TOKENS]. May be repeated." placeholder:"NAME=URL,…" sep:"none"`
	Engine        string   `help:"Engine of the demo model: sim (simulated) or llamacpp (a real small model, about 290 MB to download)." enum:"sim,llamacpp" default:"sim"`
	Replicas      int      `help:"Engines to run, each with an agent of its own; 0 = two simulated ones, or one real one." default:"0"`
	sellerFlags
	EngineFlag []string      `help:"Further argument of the demo model's engine. May be repeated." sep:"none" hidden:""`
	Validity   time.Duration `help:"How long the gateway may admit without hearing from the database." default:"5m" hidden:""`
	Drain      time.Duration `help:"How long running requests may go on when told to stop." default:"30s"`
}

func (c *upCmd) Run(ctx context.Context) error {
	tuneRuntime()
	replicas := c.Replicas
	if replicas == 0 {
		replicas = map[string]int{"sim": 2, "llamacpp": 1}[c.Engine]
	}
	if replicas < 1 || replicas > up.MaxReplicas {
		return fmt.Errorf("--replicas must be between 1 and %d", up.MaxReplicas)
	}
	seller, err := c.seller()
	if err != nil {
		return err
	}
	return up.Run(ctx, up.Config{Seller: seller, InvoiceDue: c.InvoiceDue, Data: c.Data, Listen: c.Listen, AgentListen: c.AgentListen, MetricsListen: c.MetricsListen, ReadyFile: c.ReadyFile,
		Fresh: c.Fresh, Attach: c.Attach, Engine: c.Engine, EngineFlags: c.EngineFlag, Replicas: replicas, Validity: c.Validity, Drain: c.Drain, Version: version, Out: os.Stdout})
}
