package admin

import (
	"net/url"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestTheUnitGuard(t *testing.T) {
	per := func(s string) money.Pico {
		p, err := money.ParsePerMillion(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		old, next string
		has       bool
		text      string
		large     bool
	}{
		{"0.28", "0.28", true, "unchanged", false},
		{"0.28", "0.30", true, "+7 %", false},
		{"0.20", "0.30", true, "+50 %", false},
		{"0.20", "0.300001", true, "+50 %", true},
		{"0.20", "0.10", true, "−50 %", false},
		{"0.20", "0.099999", true, "−50 %", true},
		{"0.28", "0.000028", true, "−99 %", true},
		{"0.28", "280", true, "+999 %", true},
		{"0", "0.1", true, "was free", true},
		{"0.1", "0", true, "becomes free", true},
		{"0", "0.15", false, "first price", false},
		{"0", "0.000015", false, "first price", true},
		{"0", "150000", false, "first price", true},
	} {
		text, large := changeText(per(c.old), per(c.next), c.has)
		if text != c.text || large != c.large {
			t.Errorf("%s to %s (has %v): %q large %v, want %q %v", c.old, c.next, c.has, text, large, c.text, c.large)
		}
	}
}

func TestTheGuardComparesWithTheVersionInForce(t *testing.T) {
	m := ModelDetail{Versions: []PriceVersion{
		{Prices: usage.Prices{usage.Input: 900_000}, Effective: noon.Add(time.Hour)}, // ahead
		{Prices: usage.Prices{usage.Input: 300_000}, Effective: noon.Add(-time.Hour)},
	}}
	if _, guard := priceDiff(m, NewPrice{Prices: usage.Prices{usage.Input: 310_000}}, noon); guard {
		t.Error("a small change against today's price is guarded")
	}
	if _, guard := priceDiff(m, NewPrice{Prices: usage.Prices{usage.Input: 890_000}}, noon); !guard {
		t.Error("a large change against today's price is not guarded")
	}
}

func TestReadPrice(t *testing.T) {
	p := &pages{Deps{Clock: clock.NewManual(noon)}}
	ok := url.Values{"input": {"0.28"}, "cached": {"0.07"}, "output": {"0.88"}, "request": {"0.0001"}, "effective": {"2026-12-15T00:00"}}
	f := &ui.Form{Values: ok}
	x := p.readPrice(f, ids.New())
	if !f.OK() || x.Prices[usage.Input] != 280_000 || x.Prices[usage.Requests] != 100_000_000 || !x.Effective.Equal(time.Date(2026, 12, 15, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v %+v", x, f.Errors)
	}
	for field, bad := range map[string]string{"input": "0.0000001", "cached": "-1", "output": "abc", "request": "1e3", "effective": "2026-11-29T00:00"} {
		values := url.Values{}
		for k, v := range ok {
			values[k] = v
		}
		values.Set(field, bad)
		f := &ui.Form{Values: values}
		if p.readPrice(f, ids.New()); f.Error(field) == "" {
			t.Errorf("%s = %q was accepted: %+v", field, bad, f.Errors)
		}
	}
	half := &ui.Form{Values: url.Values{"input": {"0.28"}}}
	if p.readPrice(half, ids.New()); half.Error("output") == "" {
		t.Error("a model with priced input and free output was accepted")
	}
}

// What the form shows for a price reads back as the same price.
func TestPricesRoundTripThroughTheForm(t *testing.T) {
	for _, c := range ui.PricedClasses {
		var prices usage.Prices
		prices[c] = 280_000_000
		back, err := parsePrice(inputPrice(prices, c), c)
		if err != nil || back != prices[c] {
			t.Errorf("%s: %d became %d (%v)", c, prices[c], back, err)
		}
	}
}
