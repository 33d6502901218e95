package usage

import (
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Service is the tier that a request is served at, as events, columns and exports name it.
type Service string

// The tiers. Append only: they are part of the log format.
const (
	Ordinary Service = ""         // what a request gets that asks for nothing else
	Priority Service = "priority" // served before others
	Batch    Service = "batch"    // served when there is room
)

// Known reports whether s is one of the tiers.
func (s Service) Known() bool { return s == Ordinary || s == Priority || s == Batch }

// String names the tier as OpenAI's clients do, for people and APIs. The log has words of its own.
func (s Service) String() string {
	switch s {
	case Ordinary:
		return "default"
	case Batch:
		return "flex"
	}
	return string(s)
}

// MaxSteps bounds the steps of a quote.
const MaxSteps = 4

// Step is what a request costs whose prompt is longer than Above tokens: all of it, its first tokens too.
type Step struct {
	Above  int64
	Prices Prices
}

// Quote is a price version as a request pins it at its start: with the time of day and the service tier worked in. It is a
// value without pointers, so that pinning one allocates nothing.
type Quote struct {
	Version ids.ID
	Service Service
	Prices  Prices         // up to the first step
	Steps   [MaxSteps]Step // ascending; those with Above 0 are not used
}

// For gives the prices of a request with so many prompt tokens of all kinds.
func (q *Quote) For(prompt int64) *Prices {
	p := &q.Prices
	for i := range q.Steps {
		s := &q.Steps[i]
		if s.Above == 0 || prompt <= s.Above {
			break
		}
		p = &s.Prices
	}
	return p
}

// Cost is the exact cost of v, or ok=false when it exceeds what one event may cost.
func (q *Quote) Cost(v Vector) (total money.Pico, ok bool) { return q.For(v.Prompt()).Cost(v) }

// Most gives, class by class, the highest price that a request of at most bound prompt tokens can meet: what a hold assumes
// while the prompt has not been counted.
func (q *Quote) Most(bound int64) Prices {
	most := q.Prices
	for _, s := range q.Steps {
		if s.Above == 0 || bound <= s.Above {
			break
		}
		for c, p := range s.Prices {
			most[c] = max(most[c], p)
		}
	}
	return most
}
