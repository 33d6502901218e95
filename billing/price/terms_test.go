package price_test

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// someVersion is any version that a draft could make, windows without overlap.
func someVersion(r *rand.Rand) price.Version {
	list := func() (p usage.Prices) {
		for c := range p {
			if r.IntN(4) > 0 {
				p[c] = money.Pico(r.Int64N(2_000_000_000))
			}
		}
		return p
	}
	v := price.Version{ID: ids.New(), Prices: list(), Terms: price.Terms{Batch: r.Int64N(120), Priority: r.Int64N(300)}}
	above := int64(0)
	for range r.IntN(usage.MaxSteps + 1) {
		above += 1 + r.Int64N(3000)
		v.Terms.Tiers = append(v.Terms.Tiers, price.Tier{Above: above, Prices: list()})
	}
	for from := r.IntN(300); from < 1400 && len(v.Terms.Windows) < 4; from += 60 + r.IntN(300) {
		v.Terms.Windows = append(v.Terms.Windows, price.Window{Days: price.Days(r.IntN(128)), From: from, To: from + 1 + r.IntN(60), Percent: 1 + r.Int64N(300)})
	}
	return v
}

// halfEven rounds a rational to the nearest integer, ties to the even one.
func halfEven(x *big.Rat) *big.Rat {
	floor := new(big.Int).Div(x.Num(), x.Denom())
	rest := new(big.Rat).Sub(x, new(big.Rat).SetInt(floor))
	if c := rest.Cmp(big.NewRat(1, 2)); c > 0 || c == 0 && floor.Bit(0) == 1 {
		floor.Add(floor, big.NewInt(1))
	}
	return new(big.Rat).SetInt(floor)
}

// independent is what a request costs, in nano-USD, by the words of docs/money-path.md and nothing of the code's.
func independent(v price.Version, at time.Time, service usage.Service, u usage.Vector) *big.Rat {
	prices := v.Prices
	prompt := u[usage.Input] + u[usage.Cached] + u[usage.CacheWrite] + u[usage.Image] + u[usage.Audio]
	for _, t := range v.Terms.Tiers {
		if prompt > t.Above {
			prices = t.Prices
		}
	}
	share := big.NewRat(1, 1)
	for _, w := range v.Terms.Windows {
		minute := int(at.Unix()/60) % 1440
		weekday := (int(at.Unix()/86400) + 4) % 7 // 1970-01-01 was a Thursday
		if minute >= w.From && minute < w.To && (w.Days == 0 || w.Days>>weekday&1 == 1) {
			share.Mul(share, big.NewRat(w.Percent, 100))
		}
	}
	switch {
	case service == usage.Batch && v.Terms.Batch > 0:
		share.Mul(share, big.NewRat(v.Terms.Batch, 100))
	case service == usage.Priority && v.Terms.Priority > 0:
		share.Mul(share, big.NewRat(v.Terms.Priority, 100))
	}
	sum := new(big.Rat)
	for c, n := range u {
		unit := halfEven(new(big.Rat).Mul(big.NewRat(int64(prices[c]), 1), share))
		sum.Add(sum, unit.Mul(unit, big.NewRat(n, 1)))
	}
	return halfEven(sum.Quo(sum, big.NewRat(1000, 1)))
}

// A thousand random usages at random times, tiers and versions cost what big rationals say, to the nano-dollar; and what a
// gateway holds before the prompt is counted is never less.
func TestRandomUsagesCostWhatRationalsSay(t *testing.T) {
	seed := time.Now().UnixNano()
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	stepped, windowed := 0, 0
	for i := range 1000 {
		v := someVersion(r)
		at := time.Unix(1_700_000_000+r.Int64N(100_000_000), r.Int64N(1e9))
		service := []usage.Service{usage.Ordinary, usage.Batch, usage.Priority}[r.IntN(3)]
		u := usage.Vector{usage.Input: r.Int64N(4000), usage.Cached: r.Int64N(4000), usage.CacheWrite: r.Int64N(100), usage.Output: r.Int64N(10_000),
			usage.Reasoning: r.Int64N(10_000), usage.Image: r.Int64N(2000), usage.Audio: r.Int64N(2000), usage.Requests: 1}
		quote, _ := v.Quote(at, service)
		cost, ok := quote.Cost(u)
		want := independent(v, at, service, u)
		if got := big.NewRat(int64(cost.Nano()), 1); !ok || got.Cmp(want) != 0 {
			t.Fatalf("seed %d, number %d: %v at %v, tier %q, costs %v, want %v\n%+v", seed, i, u, at, service, got, want, v)
		}
		bound := u.Prompt() + r.Int64N(5000)
		most := quote.Most(bound)
		held := most.Dearest(usage.Input, usage.Cached, usage.CacheWrite, usage.Image, usage.Audio)*money.Pico(bound) +
			most.Dearest(usage.Output, usage.Reasoning)*money.Pico(u.Generated()) + most[usage.Requests]
		if held < cost {
			t.Fatalf("seed %d, number %d: %d is held for a request of %d\n%+v", seed, i, held, cost, v)
		}
		if quote.For(u.Prompt()) != &quote.Prices {
			stepped++
		}
		if ordinary, _ := v.Quote(at, usage.Ordinary); ordinary.Prices != v.Prices {
			windowed++
		}
	}
	if stepped < 100 || windowed < 20 {
		t.Errorf("the usages hardly meet the terms: %d above a step, %d in a window", stepped, windowed)
	}
}

// What is kept is what is read, and a member nobody knows is refused.
func TestTermsAreKeptAsTheyAre(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := someVersion(rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2)))
		text, err := json.Marshal(v.Terms)
		if err != nil {
			rt.Fatal(err)
		}
		var back price.Terms
		if err := json.Unmarshal(text, &back); err != nil || !back.Equal(&v.Terms) {
			rt.Fatalf("%s became %+v, %v", text, back, err)
		}
	})
	for _, bad := range []string{`{"discount":5}`, `{"tiers":[{"above":5,"pico":{"inputs":1}}]}`, `{"windows":[{"from":"25:00","to":"26:00","percent":1}]}`,
		`{"windows":[{"days":["Funday"],"from":"01:00","to":"02:00","percent":1}]}`, `[]`, `{"batch_percent":"50"}`} {
		var terms price.Terms
		if json.Unmarshal([]byte(bad), &terms) == nil {
			t.Errorf("%s was read as %+v", bad, terms)
		}
	}
}

func TestTermsThatAreRefused(t *testing.T) {
	h := open(t)
	model := h.model(t, "acme/llama", false)
	tier := func(above int64) price.Tier {
		return price.Tier{Above: above, Prices: usage.Prices{usage.Input: 2_000_000, usage.Output: 8_000_000}}
	}
	for name, terms := range map[string]price.Terms{
		"too many tiers":       {Tiers: []price.Tier{tier(1), tier(2), tier(3), tier(4), tier(5)}},
		"tiers out of order":   {Tiers: []price.Tier{tier(20), tier(10)}},
		"a tier above none":    {Tiers: []price.Tier{tier(0)}},
		"beyond all prompts":   {Tiers: []price.Tier{tier(usage.MaxTokens)}},
		"a price below zero":   {Tiers: []price.Tier{{Above: 1, Prices: usage.Prices{usage.Input: -1}}}},
		"past midnight":        {Windows: []price.Window{{From: 1300, To: 100, Percent: 50}}},
		"no time at all":       {Windows: []price.Window{{From: 100, To: 100, Percent: 50}}},
		"a free window":        {Windows: []price.Window{{From: 1, To: 2}}},
		"windows that overlap": {Windows: []price.Window{{From: 60, To: 120, Percent: 50}, {Days: 1 << time.Friday, From: 119, To: 200, Percent: 80}}},
		"an eighth day":        {Windows: []price.Window{{Days: 1 << 7, From: 1, To: 2, Percent: 50}}},
		"a percentage":         {Priority: 1001},
		"a negative one":       {Batch: -1},
	} {
		_, err := h.service.Create(t.Context(), tenants.System(), price.Draft{Model: model, Prices: list(2), Terms: terms, Confirm: "acme/llama"})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The dearest price, with its percentages, is bounded like any.
	dear := list(2)
	dear[usage.Output] = 60_000_000_000
	_, err := h.service.Create(t.Context(), tenants.System(), price.Draft{Model: model, Prices: dear, Terms: price.Terms{Priority: 200}, Confirm: "acme/llama"})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("percentages lead beyond the highest price: %v", err)
	}
}

// The terms of a version reach every gateway, and are as immutable as its prices.
func TestABookQuotesTerms(t *testing.T) {
	h := open(t)
	model := h.model(t, "acme/llama", false)
	noon := time.Date(2027, 3, 3, 12, 0, 0, 0, time.UTC) // a Wednesday
	terms := price.Terms{Tiers: []price.Tier{{Above: 500, Prices: usage.Prices{usage.Input: 3_000_000, usage.Output: 9_000_000}}}, Priority: 150,
		Windows: []price.Window{{Days: 1 << time.Wednesday, From: 12 * 60, To: 13 * 60, Percent: 60}}}
	v := h.create(t, price.Draft{Model: model, Prices: list(2), Terms: terms})
	b, err := price.OpenBook(t.Context(), h.db, h.bus)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, c := range []struct {
		at      time.Time
		service usage.Service
		prompt  int64
		want    money.Pico
	}{
		{noon.Add(-time.Millisecond), usage.Ordinary, 500, 2_000_000},
		{noon, usage.Ordinary, 500, 1_200_000},
		{noon.Add(time.Hour), usage.Ordinary, 501, 3_000_000},
		{noon.AddDate(0, 0, 1), usage.Ordinary, 500, 2_000_000},
		{noon.In(time.FixedZone("", 3*3600)), usage.Priority, 501, 2_700_000},
	} {
		q, err := b.Quote(ids.Nil, model, price.Standard, c.at, c.service)
		if err != nil || q.For(c.prompt)[usage.Input] != c.want || q.Service != c.service {
			t.Errorf("%v %q, %d tokens: %v, %v; want %d", c.at, c.service, c.prompt, q.For(c.prompt), err, c.want)
		}
	}
	if _, err := b.Quote(ids.Nil, model, price.Standard, noon, usage.Batch); !fault.Is(err, fault.Invalid) || fault.Of(err).Param != "service_tier" {
		t.Errorf("a tier that is not offered: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = b.Quote(ids.Nil, model, price.Standard, noon, usage.Priority) }); n != 0 {
		t.Errorf("a quote allocates %v times", n)
	}
	if h.exec(t, "update price_versions set terms = '{}' where id = $1", v.ID) == nil {
		t.Error("terms were changed")
	}
}

func TestDoubtsAboutTerms(t *testing.T) {
	base := price.Version{Prices: usage.Prices{usage.Input: 1_000_000, usage.Output: 4_000_000}}
	with := func(t price.Terms) *price.Version { v := base; v.Terms = t; return &v }
	tier := func(input money.Pico) []price.Tier {
		return []price.Tier{{Above: 1000, Prices: usage.Prices{usage.Input: input, usage.Output: 4_000_000}}}
	}
	cheap := price.Window{From: 0, To: 360, Percent: 40}
	for name, c := range map[string]struct {
		before, after *price.Version
		want          string // part of the only doubt; "" = none
	}{
		"nothing":                   {&base, &base, ""},
		"a tier twice as dear":      {&base, with(price.Terms{Tiers: tier(2_000_000)}), "above 1000 prompt tokens, input changes by more than half"},
		"it stays so":               {with(price.Terms{Tiers: tier(2_000_000)}), with(price.Terms{Tiers: tier(2_100_000)}), ""},
		"it goes":                   {with(price.Terms{Tiers: tier(3_000_000)}), &base, "above 1000 prompt tokens, input changes by more than half"},
		"half price":                {&base, with(price.Terms{Batch: 50}), ""},
		"far less":                  {&base, with(price.Terms{Batch: 5}), "flex would cost 5 %"},
		"twice for priority":        {&base, with(price.Terms{Priority: 200}), "priority would cost 200 %"},
		"as before":                 {with(price.Terms{Priority: 200}), with(price.Terms{Priority: 220}), ""},
		"a window":                  {&base, with(price.Terms{Windows: []price.Window{cheap}}), "every day 00:00–06:00 UTC would cost 40 %"},
		"the same window as before": {with(price.Terms{Windows: []price.Window{cheap}}), with(price.Terms{Windows: []price.Window{cheap}}), ""},
		"the first price":           {nil, with(price.Terms{Tiers: tier(2_000_000)}), ""},
	} {
		got := price.Doubts(c.before, c.after)
		if (len(got) > 0) != (c.want != "") || c.want != "" && !slices.ContainsFunc(got, func(d string) bool { return strings.Contains(d, c.want) }) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
