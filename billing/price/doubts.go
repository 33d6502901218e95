package price

import (
	"fmt"
	"slices"

	"millrace/internal/money"
	"millrace/internal/usage"
)

// What a token usually costs. Outside of it, a price was probably given per token instead of per million, or the reverse.
const (
	unusuallyLow  money.Pico = 1_000         // 0.001 USD per million
	unusuallyHigh money.Pico = 1_000_000_000 // 1,000 USD per million
	unusualFee    money.Pico = 1_000_000_000_000
)

// Doubts says, in sentences for people, what is odd about a version that is to follow another (nil: it is the model's
// first): a change by more than half at any prompt length, time or tier, a price that looks as if it were given in another
// unit, cached tokens dearer than computed ones. Empty = nothing is odd.
func Doubts(before, after *Version) (doubts []string) {
	for _, length := range lengths(before, after) {
		var was *usage.Prices
		if before != nil {
			was = before.pricesOf(length)
		}
		prefix := ""
		if length > 0 {
			prefix = fmt.Sprintf("above %d prompt tokens, ", length)
		}
		for _, d := range priceDoubts(was, *after.pricesOf(length)) {
			doubts = append(doubts, prefix+d)
		}
	}
	if before == nil && after.Free() {
		doubts = append(doubts, "everything would be free.")
	}
	return append(doubts, percentDoubts(before, after)...)
}

// lengths are the prompt lengths above which anything changes: 0, and every tier of either.
func lengths(versions ...*Version) []int64 {
	list := []int64{0}
	for _, v := range versions {
		if v == nil {
			continue
		}
		for _, tier := range v.Terms.Tiers {
			list = append(list, tier.Above)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// pricesOf gives the prices just above a prompt length, without percentages.
func (v *Version) pricesOf(above int64) *usage.Prices {
	p := &v.Prices
	for i := range v.Terms.Tiers {
		if tier := &v.Terms.Tiers[i]; tier.Above <= above {
			p = &tier.Prices
		}
	}
	return p
}

func priceDoubts(before *usage.Prices, after usage.Prices) (doubts []string) {
	odd := func(format string, args ...any) { doubts = append(doubts, fmt.Sprintf(format, args...)) }
	for i, p := range after {
		c := usage.Class(i)
		switch {
		case c == usage.Requests && p > unusualFee:
			odd("%s is unusually dear for one request.", text(c, p))
		case c != usage.Requests && p > 0 && p < unusuallyLow:
			odd("%s for %s is unusually cheap. Was it given per token instead of per million?", text(c, p), c)
		case c != usage.Requests && p > unusuallyHigh:
			odd("%s for %s is unusually dear. Was it given per token in another unit?", text(c, p), c)
		}
		if before == nil {
			continue
		}
		switch was := before[i]; {
		case was == p:
		case was == 0:
			odd("%s was free and would cost %s.", c, text(c, p))
		case p == 0:
			odd("%s cost %s and would be free.", c, text(c, was))
		case p-was > was/2 || was-p > was/2:
			odd("%s changes by more than half, from %s to %s.", c, text(c, was), text(c, p))
		}
	}
	if after[usage.Cached] > after[usage.Input] {
		odd("cached tokens would cost more than computed ones.")
	}
	return doubts
}

// percentDoubts compares percentages: of the tiers with those before, of each window with the prices outside of it unless
// the version before had it too.
func percentDoubts(before, after *Version) (doubts []string) {
	far := func(was, is int64) bool { return 2*max(was-is, is-was) > was }
	var old Terms
	if before != nil {
		old = before.Terms
	}
	for _, s := range []usage.Service{usage.Batch, usage.Priority} {
		was, had := old.percentOf(s)
		if !had {
			was = whole
		}
		if is, has := after.Terms.percentOf(s); has && far(was, is) {
			doubts = append(doubts, fmt.Sprintf("the service tier %s would cost %d %% of the ordinary price, after %d %%.", s, is, was))
		}
	}
	for _, w := range after.Terms.Windows {
		if far(whole, w.Percent) && !slices.Contains(old.Windows, w) {
			doubts = append(doubts, fmt.Sprintf("%s would cost %d %% of the ordinary price.", w, w.Percent))
		}
	}
	return doubts
}
