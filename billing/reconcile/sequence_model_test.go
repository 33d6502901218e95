package reconcile_test

import (
	"fmt"
	"maps"
	"math/big"
	"strings"

	"millrace/billing/ledger"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

// model is the money path as simply as it can be said: one event after another, whole numbers, maps. All amounts are nano-USD.
type model struct {
	tariffs []tariff                 // by their beginning
	account map[ledger.Account]int64 // debit positive
	limit   int64
	highest int64 // limit there ever was

	charged, overrun int64
	done             map[ids.ID]bool         // requests that ended in the books
	running          map[ids.ID]*usage.Event // what was told last of streams that did not
	fenced           map[ids.ID]bool         // epochs
	tokens           usage.Vector            // of requests that cost something
	costly           int64                   // how many those are

	lots  map[string]*lot // credit that was given, by idempotency key
	sales map[ids.ID]*sale
}

// tariff is a price version.
type tariff struct {
	id       ids.ID
	from     int64 // unix milliseconds
	prices   usage.Prices
	priority int64 // percent; 0 = not offered
}

// lot is credit that was given by hand.
type lot struct {
	account         ledger.Account
	amount, expired int64
	ends            bool
}

// sale is a top-up and what became of its money.
type sale struct {
	id               ids.ID
	session, payment string
	cents            int64
	open, later      bool // the page waits; the money is on its way
	paid             bool
	refunds          []int64 // cents that went back and did not fail
	disputed         bool    // its money is with the bank: an open dispute, or a lost one
	pending          bool    // the dispute is open
	everDisputed     bool
	most             int64 // cents that were back at most

	credited, charged bool  // in the ledger: the credit, the payment provider's fee
	clawed            int64 // nano-USD, in the ledger
}

const nanoPerCent = 10_000_000

func newModel() *model {
	return &model{account: map[ledger.Account]int64{}, done: map[ids.ID]bool{}, running: map[ids.ID]*usage.Event{}, fenced: map[ids.ID]bool{},
		lots: map[string]*lot{}, sales: map[ids.ID]*sale{}}
}

// halfEven divides and rounds, to the even number where both are as near.
func halfEven(n *big.Int, by int64) *big.Int {
	q, rest := new(big.Int).QuoRem(n, big.NewInt(by), new(big.Int))
	if twice := rest.Int64() * 2; twice > by || twice == by && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// cost is what usage costs by a tariff.
func (v tariff) cost(u usage.Vector, s usage.Service) int64 {
	share := int64(100)
	if s == usage.Priority && v.priority != 0 {
		share = v.priority
	}
	pico := new(big.Int)
	for c, n := range u {
		unit := halfEven(new(big.Int).Mul(big.NewInt(int64(v.prices[c])), big.NewInt(share)), 100)
		pico.Add(pico, unit.Mul(unit, big.NewInt(n)))
	}
	return halfEven(pico, 1000).Int64()
}

func (m *model) at(ms int64) (v tariff) {
	for _, t := range m.tariffs {
		if t.from <= ms {
			v = t
		}
	}
	return v
}

func (m *model) tariff(id ids.ID) (v tariff) {
	for _, t := range m.tariffs {
		if t.id == id {
			v = t
		}
	}
	return v
}

// cost is what an event costs: by the version it names or by the one in effect when it began, whichever is less.
func (m *model) cost(e *usage.Event) int64 {
	if e.Ending == usage.FailedUnbilled {
		return 0
	}
	return min(m.tariff(e.PriceVersion).cost(e.Usage, e.Service), m.at(e.StartedMS).cost(e.Usage, e.Service))
}

// rate books what lies in the log next.
func (m *model) rate(e *usage.Event) {
	switch {
	case m.done[e.ID]:
		return
	case e.Progress > 0:
		if old := m.running[e.ID]; !m.fenced[e.Epoch] && (old == nil || old.Progress < e.Progress) {
			m.running[e.ID] = e
		}
		return
	}
	charge := int64(e.Charge)
	if m.fenced[e.Epoch] { // its money went back already
		charge = 0
	}
	m.book(e, charge)
}

// fence ends an epoch: its streams pay what was told of them last.
func (m *model) fence(epoch ids.ID) {
	m.fenced[epoch] = true
	for _, e := range maps.Clone(m.running) {
		if e.Epoch == epoch {
			m.book(e, m.cost(e))
		}
	}
}

func (m *model) book(e *usage.Event, atMost int64) {
	m.done[e.ID] = true
	delete(m.running, e.ID)
	cost := m.cost(e)
	charged := min(cost, atMost)
	m.charged, m.overrun = m.charged+charged, m.overrun+cost-charged
	if cost == 0 {
		return
	}
	m.costly++
	for c, n := range e.Usage {
		m.tokens[c] += n
	}
	m.account[ledger.Revenue] -= cost
	m.account[ledger.Overrun] += cost - charged
	for _, a := range []ledger.Account{ledger.PrepaidPromo, ledger.PrepaidPaid} {
		part := min(charged, max(0, -m.account[a]))
		m.account[a] += part
		charged -= part
	}
	m.account[ledger.Receivable] += charged
}

// give is credit from an operator.
func (m *model) give(key string, l *lot) {
	m.lots[key] = l
	from := ledger.Cash
	if l.account == ledger.PrepaidPromo {
		from = ledger.PromoCost
	}
	m.account[from] += l.amount
	m.account[l.account] -= l.amount
}

// balance is what may be spent once nothing runs.
func (m *model) balance() int64 {
	return m.limit - m.account[ledger.PrepaidPromo] - m.account[ledger.PrepaidPaid] - m.account[ledger.Receivable]
}

// bound is how far below zero the balance may be: by what was taken back of credit, and of the limit.
func (m *model) bound() int64 {
	taken := m.highest - m.limit
	for _, s := range m.sales {
		taken += s.clawed
	}
	return taken
}

// back is the cents of a sale that are with the customer or his bank now.
func (s *sale) back() (cents int64) {
	for _, n := range s.refunds {
		cents += n
	}
	if s.disputed {
		cents += s.cents
	}
	return min(cents, s.cents)
}

// movement is a transaction of the ledger that the model does not know when to expect: credit that ends, and what follows
// from the payment provider's news.
type movement struct {
	kind    ledger.Kind
	key     string // its own, or that of the credit it is about
	entries map[ledger.Account]int64
}

// observe takes a movement over, if it may be.
func (m *model) observe(x movement) error {
	if err := m.judge(x); err != nil {
		return fmt.Errorf("%s %s %v: %w", x.kind, x.key, x.entries, err)
	}
	for a, n := range x.entries {
		m.account[a] += n
	}
	return nil
}

func (m *model) judge(x movement) error {
	if x.kind == ledger.Expiry {
		return m.judgeEnd(x)
	}
	name, what, _ := strings.Cut(strings.TrimPrefix(x.key, "topup:"), ":")
	id, err := ids.Parse(ids.Topup, name)
	s := m.sales[id]
	if err != nil || s == nil {
		return fmt.Errorf("there is no such top-up")
	}
	want := map[ledger.Account]int64{}
	switch {
	case x.kind == ledger.Topup && what == "credit":
		if !s.paid || s.credited {
			return fmt.Errorf("paid %t, credited before %t", s.paid, s.credited)
		}
		s.credited = true
		want[ledger.StripeClearing], want[ledger.PrepaidPaid] = s.cents*nanoPerCent, -s.cents*nanoPerCent
	case x.kind == ledger.Adjustment && what == "fee":
		if s.charged {
			return fmt.Errorf("the fee was booked before")
		}
		s.charged = true
		fee := ((s.cents*29+500)/1000 + 30) * nanoPerCent
		want[ledger.Fees], want[ledger.StripeClearing] = fee, -fee
	case x.kind == ledger.Refund:
		n := x.entries[ledger.PrepaidPaid]
		s.clawed += n
		if !s.credited || s.clawed < 0 || s.clawed > s.most*nanoPerCent {
			return fmt.Errorf("credited %t, %d are taken back, at most %d cents were", s.credited, s.clawed, s.most)
		}
		want[ledger.PrepaidPaid], want[ledger.StripeClearing] = n, -n
	}
	if !maps.Equal(x.entries, want) {
		return fmt.Errorf("want %v", want)
	}
	return nil
}

func (m *model) judgeEnd(x movement) error {
	l := m.lots[x.key]
	if l == nil || !l.ends {
		return fmt.Errorf("it does not end")
	}
	to := ledger.Breakage
	if l.account == ledger.PrepaidPromo {
		to = ledger.PromoCost
	}
	n := x.entries[l.account]
	l.expired += n
	if n <= 0 || l.expired > l.amount || !maps.Equal(x.entries, map[ledger.Account]int64{l.account: n, to: -n}) {
		return fmt.Errorf("%d of %d ended", l.expired, l.amount)
	}
	return nil
}
