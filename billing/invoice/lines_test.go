package invoice_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"millrace/billing/credit"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/price"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// lineName is what a line is about, for comparing.
func lineName(month time.Time, version ids.ID, service, class string) string {
	return fmt.Sprintf("%s %s %q %s", month.Format("2006-01"), version, service, class)
}

// exactPrice is what a token of a class costs, worked out here and with rationals: base or tier × window × service, each rounded
// once to a whole pico-USD, half to even.
func exactPrice(v price.Version, at time.Time, s usage.Service, prompt int64, c usage.Class) *big.Int {
	unit := v.Prices[c]
	for _, t := range v.Terms.Tiers {
		if prompt > t.Above {
			unit = t.Prices[c]
		}
	}
	percent := big.NewRat(1, 1)
	for _, w := range v.Terms.Windows {
		minute := at.Hour()*60 + at.Minute()
		if (w.Days == 0 || w.Days>>at.Weekday()&1 != 0) && w.From <= minute && minute < w.To {
			percent.Mul(percent, big.NewRat(w.Percent, 100))
		}
	}
	switch s {
	case usage.Batch:
		percent.Mul(percent, big.NewRat(v.Terms.Batch, 100))
	case usage.Priority:
		percent.Mul(percent, big.NewRat(v.Terms.Priority, 100))
	}
	return nearest(new(big.Rat).Mul(percent, big.NewRat(int64(unit), 1)))
}

// nearest rounds a rational half to even.
func nearest(r *big.Rat) *big.Int {
	floor := new(big.Int).Div(r.Num(), r.Denom()) // Euclidean: down, for a positive denominator
	rest := new(big.Rat).Sub(r, new(big.Rat).SetInt(floor))
	if half := rest.Cmp(big.NewRat(1, 2)); half > 0 || half == 0 && floor.Bit(0) == 1 {
		floor.Add(floor, big.NewInt(1))
	}
	return floor
}

// Every line is worked out again from the requests, by other arithmetic: quantities, exact amounts, cents and the sums that tie
// the invoice to the ledger.
func TestLinesAreTheRequestsWorkedOutAgain(t *testing.T) {
	w := newWorld(t)
	r := rand.New(rand.NewPCG(15, 2))
	versions := []price.Version{
		w.model("acme/plain", usage.Prices{usage.Input: 150_001, usage.Cached: 15_007, usage.CacheWrite: 187_501, usage.Output: 600_003, usage.Reasoning: 600_003, usage.Image: 77, usage.Audio: 99}, price.Terms{Batch: 50, Priority: 175}),
		w.model("acme/terms", usage.Prices{usage.Input: 3_333_333, usage.Cached: 333_333, usage.Output: 9_999_999, usage.Reasoning: 9_999_999, usage.Requests: 123_457_001}, price.Terms{
			Tiers:   []price.Tier{{Above: 1000, Prices: usage.Prices{usage.Input: 6_666_667, usage.Cached: 666_667, usage.Output: 15_000_001, usage.Reasoning: 15_000_001, usage.Requests: 123_457_001}}},
			Windows: []price.Window{{From: 0, To: 6 * 60, Percent: 33}, {From: 20 * 60, To: 24 * 60, Percent: 151}}}),
	}
	later := versions[0]
	later.ID, later.EffectiveAt, later.Prices[usage.Input] = ids.New(), w.month(1).AddDate(0, 0, 10), 149_999
	w.version(later)
	c := w.customer(1000 * money.NanoPerUSD)
	c.grant(credit.Promotional, 700_000_007)
	c.grant(credit.Paid, 1_300_000_011)

	quantity, exact := map[string]int64{}, map[string]*big.Int{}
	total, overrun := new(big.Int), money.Nano(0) // of requests, each rounded to nano
	var events []*usage.Event
	for range 600 {
		at := w.month(1).Add(time.Duration(r.Int64N(int64(14 * 24 * time.Hour)))).Truncate(time.Millisecond)
		v := versions[r.IntN(2)]
		if v.ID == versions[0].ID && !at.Before(later.EffectiveAt) {
			v = later
		}
		s := usage.Ordinary
		if v.Terms.Batch != 0 {
			s = []usage.Service{usage.Ordinary, usage.Batch, usage.Priority}[r.IntN(3)]
		}
		u := usage.Vector{usage.Input: r.Int64N(3000), usage.Cached: r.Int64N(800), usage.Output: r.Int64N(2000), usage.Reasoning: r.Int64N(500), usage.Image: r.Int64N(20), usage.Requests: 1}
		e := c.event(at, v, s, u)
		cost := new(big.Int)
		for class := range usage.NumClasses {
			if u[class] == 0 {
				continue
			}
			part := new(big.Int).Mul(big.NewInt(u[class]), exactPrice(v, at, s, u.Prompt(), class))
			cost.Add(cost, part)
			word := ""
			if s != usage.Ordinary {
				word = s.String()
			}
			name := lineName(w.month(1), v.ID, word, class.String())
			quantity[name] += u[class]
			if exact[name] == nil {
				exact[name] = new(big.Int)
			}
			exact[name].Add(exact[name], part)
		}
		whole := nearest(new(big.Rat).SetFrac(cost, big.NewInt(1000)))
		total.Add(total, whole)
		if r.IntN(20) == 0 { // the gateway had less to spend
			short := min(e.Charge, 1000)
			e.Charge -= short
			overrun += money.Nano(whole.Int64()) - e.Charge
		}
		events = append(events, e)
	}
	w.at(w.month(1).AddDate(0, 0, 15))
	c.paid(events[:300]...)
	c.paid(events[300:]...)
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()

	i := c.invoice(w.month(1))
	if i == nil || i.State != invoice.Open {
		t.Fatalf("the invoice is %+v", i)
	}
	var nano, rounding money.Nano
	var cents int64
	seen := 0
	for _, l := range i.Lines {
		nano, cents = nano+l.Amount, cents+l.Cents
		if want := nearest(big.NewRat(int64(l.Amount), 10_000_000)).Int64(); l.Kind != invoice.CentsLine && l.Cents != want {
			t.Errorf("%s %s: %s USD are %d cents, want %d", l.Kind, l.Class, l.Amount, l.Cents, want)
		}
		switch l.Kind {
		case invoice.RoundingLine:
			rounding = l.Amount
		case invoice.UsageLine:
			name := lineName(l.Month, l.Version, l.Service, l.Class)
			if exact[name] == nil {
				t.Errorf("a line that no request explains: %s", name)
				continue
			}
			seen++
			if want := nearest(new(big.Rat).SetFrac(exact[name], big.NewInt(1000))); l.Quantity != quantity[name] || want.Int64() != int64(l.Amount) {
				t.Errorf("%s: %d for %d, want %d for %s", name, l.Amount, l.Quantity, quantity[name], want)
			}
			if l.Unit != nil && new(big.Int).Mul(big.NewInt(l.Quantity), big.NewInt(int64(*l.Unit))).Cmp(exact[name]) != 0 {
				t.Errorf("%s: %d at %s are not %s pico-USD", name, l.Quantity, l.Unit.PerMillion(), exact[name])
			}
			if varies := l.Version == versions[1].ID && l.Class != usage.Requests.String() && l.Class != usage.Image.String(); varies && l.Unit != nil {
				t.Errorf("%s: one unit price, though it varied", name)
			}
		case invoice.OverrunLine:
			if l.Amount != -overrun {
				t.Errorf("not charged: %s USD, want %s", l.Amount, -overrun)
			}
		}
	}
	free := 0 // requests that cost nothing by the request have no line
	for _, sum := range exact {
		if sum.Sign() == 0 {
			free++
		}
	}
	if seen < 20 || seen > len(exact) || seen < len(exact)-free {
		t.Errorf("%d lines of usage, of %d kinds of usage, %d of them free", seen, len(exact), free)
	}
	if receivable := c.account(ledger.Receivable); nano != i.Receivable || receivable != money.Nano(i.Total)*invoice.NanoPerCent || cents != i.Total {
		t.Errorf("lines of %s USD and %d cents; the invoice says %s and %d, the ledger %s", nano, cents, i.Receivable, i.Total, receivable)
	}
	if want := money.Nano(i.Total)*invoice.NanoPerCent - i.Receivable; -c.account(ledger.Rounding) != want {
		t.Errorf("rounding of %s USD in the ledger, want %s", -c.account(ledger.Rounding), want)
	}
	if charged := i.Charged + i.Overrun; charged != money.Nano(total.Int64()) || i.Promo != 700_000_008 || i.Prepaid != 1_300_000_011 || i.Overrun != overrun || rounding == 0 {
		t.Errorf("charged %s, want %s; promo %s, prepaid %s, overrun %s, want %s; rounding %s", charged, total, i.Promo, i.Prepaid, i.Overrun, overrun, rounding)
	}
	w.sound()
}
