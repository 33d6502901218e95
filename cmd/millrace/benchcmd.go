package main

import "millrace/cmd/millrace/bench"

// benchCmd measures; see docs/benchmarks.md.
type benchCmd struct {
	Gateway bench.GatewayCmd `cmd:"" help:"Requests per second and added latency: direct, nginx, Millrace, Millrace through an agent."`
	Books   bench.BooksCmd   `cmd:"" help:"What a large book costs: the rater, the console's pages and exports over many booked requests."`
	Rater   bench.RaterCmd   `cmd:"" help:"How fast usage becomes ledger entries, beside COPY of the same rows."`
	Planner bench.PlannerCmd `cmd:"" help:"How long a plan takes, by the size of the fleet."`
	Agents  bench.AgentsCmd  `cmd:"" help:"What agents cost their hub: CPU and bytes a second, at rest, busy, and when all come back at once."`
	Recipe  bench.RecipeCmd  `cmd:"" help:"What an endpoint does: its speed, what workloads cost on it, and the cost model that fits."`
	Crash   bench.CrashCmd   `cmd:"" help:"Kill everything, and gateways alone, at random moments under load; the books must agree with every client."`
}
