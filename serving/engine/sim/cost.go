package sim

import "time"

// Cost says how long one step of the engine takes, in nanoseconds:
//
//	max(A0 if there is prefill, B0 if there is decode) + A1·new + A2·pairs + B1·batch + B2·context
//
// where new is the prefill tokens of the step, pairs how many earlier tokens they attend to, batch the decoding
// sequences and context the tokens in their caches.
type Cost struct {
	A0 float64 `name:"a0" help:"Fixed time of a step with prefill, in nanoseconds." default:"2000000"`
	A1 float64 `name:"a1" help:"Time per prefill token, in nanoseconds." default:"10000"`
	A2 float64 `name:"a2" help:"Time per pair of prefill token and earlier token, in nanoseconds." default:"0.02"`
	B0 float64 `name:"b0" help:"Fixed time of a decode step, in nanoseconds." default:"4500000"`
	B1 float64 `name:"b1" help:"Time per decoding sequence, in nanoseconds." default:"20000"`
	B2 float64 `name:"b2" help:"Time per token of context of the decoding sequences, in nanoseconds." default:"2"`
}

// DefaultCost feels like a small model on a fast GPU: a first token after a few milliseconds, 200 tokens/s per stream.
var DefaultCost = Cost{A0: 2e6, A1: 10e3, A2: 0.02, B0: 4.5e6, B1: 20e3, B2: 2}

// work is what one step computes.
type work struct {
	prefill float64 // tokens
	pairs   float64
	decode  float64 // sequences
	context float64 // tokens in their caches
}

// addPrefill counts n new tokens after c computed ones.
func (w *work) addPrefill(n, c int) {
	w.prefill += float64(n)
	w.pairs += float64(n)*float64(c) + float64(n)*float64(n)/2
}

func (w *work) addDecode(context int) {
	w.decode++
	w.context += float64(context)
}

// of is the time of a step.
func (c Cost) of(w work) time.Duration {
	var fixed float64
	if w.prefill > 0 {
		fixed = c.A0
	}
	if w.decode > 0 {
		fixed = max(fixed, c.B0)
	}
	return time.Duration(fixed + c.A1*w.prefill + c.A2*w.pairs + c.B1*w.decode + c.B2*w.context)
}
