package invoice

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// MaxLines bounds an invoice: models × versions × tiers × classes, by month.
const MaxLines = 20_000

// lineKey is what a line of usage is about.
type lineKey struct {
	month          time.Time
	model, version ids.ID
	service        usage.Service
	class          usage.Class
}

// lineSum is what a line of usage adds up to.
type lineSum struct {
	quantity int64
	exact    *big.Int // pico-USD
	unit     money.Pico
	varied   bool
}

// sheet is an invoice's lines and what they say.
type sheet struct {
	lines   []Line
	total   account
	cents   int64
	problem string // why they do not add up; "" = they do
}

// newSheet writes the lines: usage by exact price, then what makes it the ledger's receivable, month by month, the
// invoice's own month first.
func newSheet(month time.Time, all []used, months map[time.Time]account, names map[ids.ID]string) sheet {
	sums, events := addUp(all)
	s := sheet{}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b lineKey) int {
		return cmp.Or(compareMonths(month, a.month, b.month), cmp.Compare(names[a.model], names[b.model]), slices.Compare(a.model[:], b.model[:]),
			slices.Compare(a.version[:], b.version[:]), cmp.Compare(a.service, b.service), cmp.Compare(a.class, b.class))
	})
	usedIn := make(map[time.Time][]lineKey)
	for _, k := range keys {
		usedIn[k.month] = append(usedIn[k.month], k)
		if _, ok := months[k.month]; !ok {
			months[k.month] = account{} // tokens without a transaction: the difference below tells
		}
	}
	for _, m := range slices.SortedFunc(maps.Keys(months), func(a, b time.Time) int { return compareMonths(month, a, b) }) {
		s.addMonth(m, months[m], usedIn[m], sums, events[m], names)
	}
	s.round(month)
	if len(s.lines) > MaxLines {
		s.problem = fmt.Sprintf("it would have %d lines, at most %d", len(s.lines), MaxLines)
	}
	return s
}

// round makes the total what is receivable, rounded once: what rounding line by line adds or takes is a line of its own.
func (s *sheet) round(month time.Time) {
	total := cents(s.total.receivable)
	if total < 0 {
		s.problem, total = fmt.Sprintf("its usage left %s USD receivable", s.total.receivable), 0
	}
	if off := total - s.cents; off != 0 {
		s.lines = append(s.lines, Line{Kind: CentsLine, Month: month, Cents: off})
	}
	s.cents = total
}

// addMonth writes the lines of one month of usage.
func (s *sheet) addMonth(m time.Time, a account, keys []lineKey, sums map[lineKey]*lineSum, events int64, names map[ids.ID]string) {
	first, amount := len(s.lines), money.Nano(0)
	for _, k := range keys {
		sum := sums[k]
		if sum.exact.Sign() == 0 && k.class == usage.Requests {
			continue // nothing is charged by the request
		}
		l := Line{Kind: UsageLine, Month: m, Model: k.model, Name: names[k.model], Version: k.version, Class: k.class.String(), Quantity: sum.quantity,
			Amount: money.Nano(halfEven(sum.exact, int64(money.PicoPerNano)))}
		if k.service != usage.Ordinary {
			l.Service = k.service.String()
		}
		if !sum.varied {
			unit := sum.unit
			l.Unit = &unit
		}
		s.lines, amount = append(s.lines, l), amount+l.Amount
	}
	rounding := a.charged() + a.overrun - amount
	if most := money.Nano(events + int64(len(s.lines)-first)); max(rounding, -rounding) > most {
		s.problem = fmt.Sprintf("the usage of %s comes to %s USD by its tokens and to %s USD by the ledger", m.Format("January 2006"), amount, a.charged()+a.overrun)
	}
	for _, l := range []Line{{Kind: RoundingLine, Amount: rounding}, {Kind: OverrunLine, Amount: -a.overrun}, {Kind: PromoLine, Amount: -a.promo},
		{Kind: PrepaidLine, Amount: -a.prepaid}} {
		if l.Month = m; l.Amount != 0 {
			s.lines = append(s.lines, l)
		}
	}
	for i := first; i < len(s.lines); i++ {
		s.lines[i].Cents = cents(s.lines[i].Amount)
		s.cents += s.lines[i].Cents
	}
	s.total.add(a)
}

// addUp sums usage by line, and requests by month.
func addUp(all []used) (map[lineKey]*lineSum, map[time.Time]int64) {
	sums, events := make(map[lineKey]*lineSum), make(map[time.Time]int64)
	for _, u := range all {
		events[u.month] += u.events
		for c, n := range u.tokens {
			if n == 0 {
				continue
			}
			key := lineKey{u.month, u.model, u.version, u.service, usage.Class(c)}
			sum := sums[key]
			if sum == nil {
				sum = &lineSum{exact: new(big.Int), unit: u.prices[c]}
				sums[key] = sum
			}
			sum.quantity += n
			sum.varied = sum.varied || sum.unit != u.prices[c]
			sum.exact.Add(sum.exact, new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(u.prices[c]))))
		}
	}
	return sums, events
}

// compareMonths puts the invoice's own month first, then the newest.
func compareMonths(own, a, b time.Time) int {
	if ours := a.Equal(own); ours != b.Equal(own) {
		if ours {
			return -1
		}
		return 1
	}
	return b.Compare(a)
}
