package main

import "millrace/cmd/millrace/bench"

// benchCmd measures; see docs/benchmarks.md.
type benchCmd struct {
	Gateway bench.GatewayCmd `cmd:"" help:"Requests per second and added latency: direct, nginx, Millrace, Millrace through an agent."`
}
