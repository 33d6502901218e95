// Package measure finds out how fast an endpoint is: it sends streamed chats to an engine (or whatever speaks like one),
// times their tokens, and gives the samples that recipe.Fit makes a cost model of.
//
// It owns the sweep and the workloads. It does not own the fit (serving/recipe), nor the load at saturation of the gateway
// benches (serving/bench).
//
// Words. Sweep: prompts of many lengths alone, then batches of many sizes. Workload: a shape of requests, kept up for a
// while by a fixed number of clients.
//
// Invariants: no prompt begins like another, so that no cache helps, except where a workload says so; a run is bounded in
// time and in requests; an answer that breaks counts as an error, never as a sample.
package measure
