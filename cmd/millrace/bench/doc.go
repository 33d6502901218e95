// Package bench is the commands under `millrace bench`. Each starts what it measures as processes of their own, in a
// temporary folder and on loopback, loads it, and prints figures beside something to compare them with, taken in the same
// run.
//
// It owns the processes it starts, the order of measuring and the reports. It does not own what is measured, nor the load
// generator (serving/bench) or the rater's own bench (billing/rate).
//
// Invariants: whatever a run started ends with it; a run is bounded in time; an answer that was not whole is never
// counted.
package bench
