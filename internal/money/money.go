// Package money holds the integer types of money. There is no floating point anywhere in Millrace's money.
//
// Pico is 10^-12 USD: unit prices per token and exact costs of one event. Nano is 10^-9 USD: everything in the ledger,
// budgets and allotments. Cents exist only on invoices and at Stripe. Rounding happens once: the exact cost of an event
// in pico is rounded half to even to nano when it is posted (Pico.Nano); a hold is rounded up (Pico.CeilNano).
package money

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Nano is an amount in 10^-9 USD. The range is about ±9.2 billion USD.
type Nano int64

// Pico is an amount in 10^-12 USD. The range is about ±9.2 million USD, enough for one event.
type Pico int64

// Units.
const (
	NanoPerUSD  Nano = 1_000_000_000
	PicoPerNano Pico = 1000
	// MaxPico is the dearest a single event or hold may be (9 million USD); above it a cost is refused as impossible.
	MaxPico Pico = 9_000_000_000_000_000_000
)

// Nano rounds half to even.
func (p Pico) Nano() Nano {
	q, r := int64(p/PicoPerNano), int64(p%PicoPerNano)
	switch {
	case r > 500 || r == 500 && q&1 != 0:
		q++
	case r < -500 || r == -500 && q&1 != 0:
		q--
	}
	return Nano(q)
}

// CeilNano rounds a non-negative amount up: a hold must never be less than the charge it covers.
func (p Pico) CeilNano() Nano {
	return Nano((p + PicoPerNano - 1) / PicoPerNano)
}

// Cost is tokens × price, or ok=false when it is negative or beyond MaxPico.
func Cost(tokens int64, perToken Pico) (cost Pico, ok bool) {
	if tokens < 0 || perToken < 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(tokens), uint64(perToken))
	if hi != 0 || lo > uint64(MaxPico) {
		return 0, false
	}
	return Pico(lo), true
}

// Add is a+b for non-negative amounts, or ok=false beyond MaxPico.
func Add(a, b Pico) (Pico, bool) {
	if a < 0 || b < 0 || a > MaxPico-b {
		return 0, false
	}
	return a + b, true
}

// Percent is p × share / of, rounded half to even; share and of are positive, and the result must fit.
func Percent(p Pico, share, of int64) Pico {
	hi, lo := bits.Mul64(uint64(p), uint64(share))
	q, r := bits.Div64(hi, lo, uint64(of))
	if twice := 2 * r; twice > uint64(of) || twice == uint64(of) && q&1 != 0 {
		q++
	}
	return Pico(q)
}

// ParseUSD reads a decimal dollar amount ("12.5", "-0.000000001") exactly; more than nine decimals is an error.
func ParseUSD(s string) (Nano, error) {
	v, err := parseScaled(s, 9)
	return Nano(v), err
}

// ParsePerMillion reads a price in USD per 1M tokens ("0.15") as pico-USD per token: 1 USD per million is 10^6 pico.
func ParsePerMillion(s string) (Pico, error) {
	v, err := parseScaled(s, 6)
	return Pico(v), err
}

// String writes dollars with all significant decimals: "12.5", "0.000000001".
func (n Nano) String() string { return formatScaled(int64(n), 9) }

// String writes dollars with all significant decimals: a price per token as "0.00000015".
func (p Pico) String() string { return formatScaled(int64(p), 12) }

// PerMillion writes a per-token price as USD per 1M tokens, all significant decimals.
func (p Pico) PerMillion() string { return formatScaled(int64(p), 6) }

func parseScaled(s string, scale int) (int64, error) {
	t := strings.TrimSpace(s)
	neg := strings.HasPrefix(t, "-")
	whole, frac, _ := strings.Cut(strings.TrimPrefix(t, "-"), ".")
	if whole == "" && frac == "" || len(frac) > scale || strings.ContainsAny(whole+frac, "+-_ eE") {
		return 0, fmt.Errorf("%q is not an amount with at most %d decimals", s, scale)
	}
	v, err := strconv.ParseInt(whole+frac+strings.Repeat("0", scale-len(frac)), 10, 64)
	if err != nil || v == math.MinInt64 {
		return 0, fmt.Errorf("%q is not an amount with at most %d decimals", s, scale)
	}
	if neg {
		v = -v
	}
	return v, nil
}

func formatScaled(v int64, scale int) string {
	sign := ""
	u := uint64(v)
	if v < 0 {
		sign, u = "-", -u
	}
	s := strconv.FormatUint(u, 10)
	if len(s) <= scale {
		s = strings.Repeat("0", scale-len(s)+1) + s
	}
	whole, frac := s[:len(s)-scale], strings.TrimRight(s[len(s)-scale:], "0")
	if frac == "" {
		return sign + whole
	}
	return sign + whole + "." + frac
}
