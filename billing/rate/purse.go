package rate

import (
	"bytes"
	"slices"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// budget names a budget row.
type budget struct{ org, id ids.ID }

// pot names an allotment row.
type pot struct {
	budget
	epoch ids.ID
}

// epochState is what the database knows of an epoch.
type epochState struct{ fenced, voided bool }

// purse is the money that a batch may take: what the locked rows have left. It is charged in the order of the log.
type purse struct {
	epochs  map[ids.ID]epochState
	balance map[ids.ID]ids.ID     // by organization: its balance budget, where a voided epoch needs it
	rest    map[pot]money.Nano    // of allotments
	free    map[budget]money.Nano // of budgets, where a voided epoch needs them
	used    map[pot]money.Nano    // taken here
	raised  map[pot]money.Nano    // allotted here, for voided epochs
}

func newPurse() *purse {
	return &purse{epochs: map[ids.ID]epochState{}, balance: map[ids.ID]ids.ID{}, rest: map[pot]money.Nano{}, free: map[budget]money.Nano{},
		used: map[pot]money.Nano{}, raised: map[pot]money.Nano{}}
}

// voided reports whether money may be raised for the epoch's events.
func (p *purse) voided(epoch ids.ID) bool {
	s := p.epochs[epoch]
	return s.voided && !s.fenced
}

// charge decides what the customer pays for a priced event, and takes it.
func (p *purse) charge(e *entry) {
	if e.cost == 0 {
		return
	}
	want := e.cost
	if e.ev.Ending != usage.GatewayDied { // a dead gateway charged nothing for what was running
		want = min(want, e.ev.Charge)
	}
	pots := p.pots(&e.ev)
	for _, t := range pots {
		have := p.rest[t]
		if p.voided(t.epoch) {
			have += max(0, p.free[t.budget])
		}
		want = min(want, have)
	}
	if len(pots) == 0 {
		want = 0
	}
	for _, t := range pots {
		if lack := want - p.rest[t]; lack > 0 {
			p.raised[t] += lack
			p.rest[t] += lack
			p.free[t.budget] -= lack
		}
		p.rest[t] -= want
		p.used[t] += want
	}
	e.charged, e.overrun = want, e.cost-want
}

// pots are the allotments that an event is taken from. A voided epoch's event may name budgets that this database has
// never seen: their money is gone with the newer database, and the organization's balance stands in.
func (p *purse) pots(ev *usage.Event) []pot {
	scopes := scopesOf(ev)
	pots := make([]pot, 0, len(scopes)+1)
	lost := p.voided(ev.Epoch)
	for _, id := range scopes {
		b := budget{ev.Org, id}
		if _, exists := p.free[b]; !exists && lost {
			continue
		}
		pots = append(pots, pot{b, ev.Epoch})
	}
	if id, ok := p.balance[ev.Org]; ok && lost && !slices.Contains(scopes, id) {
		pots = append(pots, pot{budget{ev.Org, id}, ev.Epoch})
	}
	return pots
}

// scopesOf are the event's budgets, each once.
func scopesOf(ev *usage.Event) []ids.ID {
	ok := ev.OrgBudget == ids.Nil || slices.Contains(ev.Budgets, ev.OrgBudget)
	for i := 1; ok && i < len(ev.Budgets); i++ {
		ok = compareIDs(ev.Budgets[i-1], ev.Budgets[i]) < 0
	}
	if ok { // as gateways write it
		return ev.Budgets
	}
	scopes := slices.Clone(ev.Budgets)
	if ev.OrgBudget != ids.Nil {
		scopes = append(scopes, ev.OrgBudget)
	}
	return sortedSet(scopes)
}

func compareIDs(a, b ids.ID) int { return bytes.Compare(a[:], b[:]) }

func comparePots(a, b pot) int {
	if c := compareIDs(a.id, b.id); c != 0 {
		return c
	}
	return compareIDs(a.epoch, b.epoch)
}
