package usage

import (
	"testing"

	"millrace/internal/ids"
	"millrace/internal/money"
	"pgregory.net/rapid"
)

func drawVector(t *rapid.T) (v Vector) {
	for c := range v {
		v[c] = rapid.Int64Range(0, MaxTokens).Draw(t, Class(c).String())
	}
	v[Requests] = 1
	return v
}

// Cost never falls when a count rises, and no class is free when it has a price.
func TestCostIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, p := drawVector(t), Prices{}
		for c := range p {
			p[c] = money.Pico(rapid.Int64Range(0, 1_000_000_000).Draw(t, "price"))
		}
		before, ok := p.Cost(v)
		c := Class(rapid.IntRange(0, int(NumClasses)-1).Draw(t, "class"))
		more := v
		more[c]++
		after, ok2 := p.Cost(more)
		if !ok || !ok2 || after-before != p[c] {
			t.Fatalf("one more %s token costs %d, price %d", c, after-before, p[c])
		}
	})
}

func TestImpossibleUsageIsRefused(t *testing.T) {
	e := Event{ID: ids.New(), Org: ids.New(), Epoch: ids.New(), Model: ids.New(), Ending: Complete}
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Event){
		"negative": func(e *Event) { e.Usage[Input] = -1 },
		"billions": func(e *Event) { e.Usage[Output] = 1e12 },
		"ending":   func(e *Event) { e.Ending = "vanished" },
		"charge":   func(e *Event) { e.Charge = -5 },
		"no org":   func(e *Event) { e.Org = ids.Nil },
	} {
		bad := e
		spoil(&bad)
		if bad.Validate() == nil {
			t.Errorf("%s passed", name)
		}
	}
}
