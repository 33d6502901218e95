// Package gatetest puts a gate between a scripted engine and a test's client. It owns fakes of the gate's ports that
// check the gate's promises: holds end once, charges stay within them, every request leaves one event.
package gatetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/gate"
)

// Prices charges one nano-dollar a token of input, less for cached ones, two for output.
type Prices struct{ Quoted usage.Quote }

// NewPrices makes them.
func NewPrices() *Prices {
	return &Prices{usage.Quote{Version: ids.New(), Prices: usage.Prices{usage.Input: 1000, usage.Cached: 100, usage.CacheWrite: 1000,
		usage.Output: 2000, usage.Reasoning: 2000, usage.Image: 1000, usage.Audio: 1000}}}
}

// Quote implements gate.Pricer.
func (p *Prices) Quote(_, _ ids.ID, _ string, _ time.Time, s usage.Service) (usage.Quote, error) {
	q := p.Quoted
	q.Service = s
	return q, nil
}

// Budgets is one balance. The zero Cap is no money at all.
type Budgets struct {
	Cap money.Nano

	mu      sync.Mutex
	settled money.Nano
	open    map[*hold]bool
	faults  []string
	broken  error // what Extend gives; nil = it works
	epoch   ids.ID
	budget  ids.ID
}

// NewBudgets makes a balance.
func NewBudgets(limit money.Nano) *Budgets {
	return &Budgets{Cap: limit, open: map[*hold]bool{}, epoch: ids.New(), budget: ids.New()}
}

type hold struct {
	of     *Budgets
	amount money.Nano
}

func (b *Budgets) held() (sum money.Nano) {
	for h := range b.open {
		sum += h.amount
	}
	return sum
}

// Hold implements gate.Budgets.
func (b *Budgets) Hold(_ context.Context, _ gate.Payer, amount money.Nano) (gate.Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.settled+b.held()+amount > b.Cap {
		return nil, outOfCredit()
	}
	h := &hold{of: b, amount: amount}
	b.open[h] = true
	return h, nil
}

func outOfCredit() error {
	return fault.New(fault.OutOfCredit, "No credit.").WithCode("insufficient_quota")
}

func (h *hold) Extend(_ context.Context, amount money.Nano) error {
	b := h.of
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.broken != nil:
		return b.broken
	case b.settled+b.held()+amount > b.Cap:
		return outOfCredit()
	}
	h.amount += amount
	return nil
}

func (h *hold) Settle(charge money.Nano) {
	b := h.of
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open[h]:
		b.faults = append(b.faults, "a hold was settled twice")
	case charge < 0 || charge > h.amount:
		b.faults = append(b.faults, fmt.Sprintf("charged %d of a hold of %d", charge, h.amount))
	}
	delete(b.open, h)
	b.settled += charge
}

func (h *hold) Epoch() ids.ID     { return h.of.epoch }
func (h *hold) Budgets() []ids.ID { return []ids.ID{h.of.budget} }
func (h *hold) OrgBudget() ids.ID { return h.of.budget }

// Break makes extensions fail.
func (b *Budgets) Break(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
}

// Settled is what was charged in all.
func (b *Budgets) Settled() money.Nano {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settled
}

// Check fails the test when a promise about money was broken or a hold is still open.
func (b *Budgets) Check(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		t.Error(f)
	}
	if len(b.open) > 0 {
		t.Errorf("%d holds are open", len(b.open))
	}
	if b.settled > b.Cap {
		t.Errorf("charged %d of %d", b.settled, b.Cap)
	}
}

// Log keeps events. While Stuck, nothing is acknowledged.
type Log struct {
	mu       sync.Mutex
	events   []*usage.Event
	progress []*usage.Event
	stuck    bool
	waiting  []chan struct{}
	unready  error
}

// Append implements gate.UsageLog.
func (l *Log) Append(e *usage.Event) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Progress > 0 {
		l.progress = append(l.progress, e)
	} else {
		l.events = append(l.events, e)
	}
	ack := make(chan struct{})
	if l.stuck {
		l.waiting = append(l.waiting, ack)
	} else {
		close(ack)
	}
	return ack
}

// Ready implements gate.UsageLog.
func (l *Log) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unready
}

// SetReady says what Ready gives.
func (l *Log) SetReady(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unready = err
}

// Stick stops acknowledgements, or gives all that wait.
func (l *Log) Stick(stuck bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck = stuck
	if !stuck {
		for _, ack := range l.waiting {
			close(ack)
		}
		l.waiting = nil
	}
}

// Events are the final events so far.
func (l *Log) Events() []*usage.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*usage.Event(nil), l.events...)
}

// Progress are the progress events so far.
func (l *Log) Progress() []*usage.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*usage.Event(nil), l.progress...)
}

// Models is a fixed catalogue.
type Models map[string]*catalogue.Model

// Model implements gate.Models.
func (m Models) Model(name string) (*catalogue.Model, bool) { model, ok := m[name]; return model, ok }

// Models lists them.
func (m Models) Models() (list []*catalogue.Model) {
	for _, model := range m {
		list = append(list, model)
	}
	return list
}

// Salts gives every tenant a salt of its own.
type Salts struct{}

// CacheSalt implements gate.Salter.
func (Salts) CacheSalt(tenant string) string { return "salt-" + tenant }
