// Package usage defines what a request consumed: the vector of disjoint token classes, and the event that carries it
// from the gateway through the usage log to the rater. It knows nothing of prices' owners, customers' names or engines.
//
// Invariants: classes never overlap (cached tokens are not in Input, reasoning tokens are not in Output), no class is
// negative, and the sum of the prompt classes is the engine's prompt count. Engine drivers normalise to this shape.
package usage

import (
	"errors"
	"fmt"
	"slices"

	"millrace/internal/money"
)

// Class indexes a token class. The order is part of the log format: append only.
type Class int

// The classes that can be priced.
const (
	Input      Class = iota // prompt tokens that were computed
	Cached                  // prompt tokens read from a prefix cache
	CacheWrite              // prompt tokens written to a cache on request
	Output                  // generated tokens shown to the client
	Reasoning               // generated tokens of the model's reasoning
	Image                   // tokens of image input
	Audio                   // tokens of audio input
	Requests                // 1 for a request that is charged at all
	NumClasses
)

var classNames = [NumClasses]string{"input", "cached", "cache_write", "output", "reasoning", "image", "audio", "request"}

// String is the class's stable name, used in JSON, SQL columns and exports.
func (c Class) String() string { return classNames[c] }

// ClassOf finds a class by its name.
func ClassOf(name string) (c Class, ok bool) {
	i := slices.Index(classNames[:], name)
	return Class(i), i >= 0
}

// Vector counts tokens by class.
type Vector [NumClasses]int64

// Prompt is the number of prompt tokens of all kinds.
func (v Vector) Prompt() int64 { return v[Input] + v[Cached] + v[CacheWrite] + v[Image] + v[Audio] }

// Generated is the number of generated tokens of all kinds.
func (v Vector) Generated() int64 { return v[Output] + v[Reasoning] }

// Tokens is all tokens, without the request count.
func (v Vector) Tokens() int64 { return v.Prompt() + v.Generated() }

// MaxTokens bounds every class: above it usage is impossible (contexts reach 1M, answers 256K tokens).
const MaxTokens = 4 << 20

// Impossible is what a gateway writes when the engine's figures cannot be: it fails Validate. The event has the engine's
// words in Raw and what is wrong with them in Doubt.
var Impossible = Vector{Input: -1, Requests: 1}

// Validate refuses impossible usage: it is quarantined, never charged.
func (v Vector) Validate() error {
	if v == Impossible {
		return errors.New("usage: the engine's count cannot be right")
	}
	for c, n := range v {
		if n < 0 || n > MaxTokens {
			return fmt.Errorf("usage: %s count %d is impossible", Class(c), n)
		}
	}
	if v[Requests] > 1 {
		return fmt.Errorf("usage: request count %d is impossible", v[Requests])
	}
	return nil
}

// Prices is a price per unit for every class: pico-USD per token, or per request for Requests.
type Prices [NumClasses]money.Pico

// Cost is the exact cost of v, or ok=false when it exceeds what one event may cost.
func (p Prices) Cost(v Vector) (total money.Pico, ok bool) {
	for c, n := range v {
		part, ok := money.Cost(n, p[c])
		if !ok {
			return 0, false
		}
		if total, ok = money.Add(total, part); !ok {
			return 0, false
		}
	}
	return total, true
}

// Dearest is the highest price over the given classes: what a hold assumes while a token's class is unknown.
func (p Prices) Dearest(classes ...Class) money.Pico {
	var high money.Pico
	for _, c := range classes {
		high = max(high, p[c])
	}
	return high
}
