package rate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// errKnown means that some of the events are in the books already: the log was read again.
var errKnown = errors.New("rate: events are booked already")

// pass books entries in one transaction. Its steps run in order; each is a few statements for all entries together, and
// together they take the locks in the order of the house.
type pass struct {
	tx       pgx.Tx
	q        *q.Queries
	now      time.Time
	finals   []*entry
	progress []*entry
	ledger   *ledger.Locked // of the organizations that owe something
	purse    *purse
	moved    map[budget]money.Nano // charged, by budget
}

// book runs the steps. It leaves out what judging finds impossible: such entries carry their reason. errKnown: nothing is
// wrong, but some of the finals must be left out.
func book(ctx context.Context, tx pgx.Tx, now time.Time, finals, progress []*entry, at func(step string) error) error {
	p := &pass{tx: tx, q: q.New(tx), now: now, finals: finals, progress: progress, purse: newPurse(), moved: map[budget]money.Nano{}}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"make partitions", p.makeDays}, {"judge", p.judge}, {"read epochs", p.readEpochs}, {"lock balances", p.lockBalances},
		{"lock allotments", p.lockAllotments}, {"charge", p.charge}, {"use allotments", p.useAllotments}, {"post", p.post},
		{"insert events", p.insertEvents}, {"add rollups", p.addRollups}, {"streams", p.streams}, {"settle budgets", p.settleBudgets},
	} {
		if err := at(step.name); err != nil {
			return err
		}
		if err := step.do(ctx); err != nil {
			if errors.Is(err, errKnown) {
				return err
			}
			return fmt.Errorf("rate: %s: %w", step.name, err)
		}
	}
	return at("booked")
}

func (p *pass) makeDays(ctx context.Context) error {
	return p.q.EnsureDaysOfBatch(ctx, daysOf(slices.Concat(p.finals, p.progress), p.now))
}

// judge prices the finals and drops what cannot be booked.
func (p *pass) judge(ctx context.Context) error {
	all := slices.Concat(p.finals, p.progress)
	if len(all) == 0 {
		return nil
	}
	facts, err := readFacts(ctx, p.tx, all)
	if err != nil {
		return err
	}
	for _, e := range all {
		facts.judge(e)
	}
	impossible := func(e *entry) bool { return e.reason != "" }
	p.finals = slices.DeleteFunc(slices.Clone(p.finals), impossible)
	p.progress = slices.DeleteFunc(slices.Clone(p.progress), impossible)
	return nil
}

// readEpochs learns which epochs are fenced or voided, and makes those that the database does not know.
func (p *pass) readEpochs(ctx context.Context) error {
	named := make([]ids.ID, 0, len(p.finals)+len(p.progress))
	for _, e := range slices.Concat(p.finals, p.progress) {
		named = append(named, e.ev.Epoch)
	}
	named = sortedSet(named)
	rows, err := p.q.StateOfEpochs(ctx, named)
	if err != nil {
		return err
	}
	for _, r := range rows {
		p.purse.epochs[r.ID] = epochState{fenced: r.Fenced, voided: r.Voided}
	}
	var lost, voided []ids.ID
	for _, id := range named {
		state, known := p.purse.epochs[id]
		if !known {
			lost = append(lost, id)
		}
		if !known || state.voided && !state.fenced {
			voided = append(voided, id)
		}
	}
	if len(lost) > 0 {
		if err := p.q.InsertLostEpochs(ctx, lost); err != nil {
			return err
		}
	}
	if len(voided) == 0 {
		return nil
	}
	// Money is raised for these: no fence may count meanwhile.
	open, err := p.q.HoldVoidedEpochs(ctx, voided)
	if err != nil {
		return err
	}
	for _, id := range voided {
		p.purse.epochs[id] = epochState{voided: true, fenced: !slices.Contains(open, id)}
	}
	return nil
}

// lockBalances takes the ledger's locks first, as everyone does; the charges are not known yet.
func (p *pass) lockBalances(ctx context.Context) error {
	var orgs []ids.ID
	for _, e := range p.finals {
		if e.cost > 0 {
			orgs = append(orgs, e.ev.Org)
		}
	}
	if len(orgs) == 0 {
		return nil
	}
	var err error
	p.ledger, err = ledger.Lock(ctx, p.tx, orgs)
	return err
}

func (p *pass) lockAllotments(ctx context.Context) error {
	wanted := make(map[pot]bool)
	var orgs, budgets []ids.ID // of voided epochs
	for _, e := range p.finals {
		if e.cost == 0 {
			continue
		}
		lost := p.purse.voided(e.ev.Epoch)
		for _, id := range scopesOf(&e.ev) {
			wanted[pot{budget{e.ev.Org, id}, e.ev.Epoch}] = true
			if lost {
				budgets = append(budgets, id)
			}
		}
		if lost {
			orgs = append(orgs, e.ev.Org)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	if len(orgs) > 0 {
		if err := p.lockBalanceAllotments(ctx, orgs, wanted); err != nil {
			return err
		}
	}
	keys := slices.SortedFunc(maps.Keys(wanted), comparePots)
	c := columnsOf(keys)
	rows, err := p.q.LockAllotmentsToUse(ctx, q.LockAllotmentsToUseParams{Orgs: c.orgs, Budgets: c.budgets, Epochs: c.epochs})
	if err != nil {
		return err
	}
	for _, r := range rows {
		p.purse.rest[pot{budget{r.OrgID, r.BudgetID}, r.EpochID}] = money.Nano(r.Rest)
	}
	if len(orgs) == 0 {
		return nil
	}
	free, err := p.q.LockBudgetsToRaise(ctx, q.LockBudgetsToRaiseParams{Orgs: sortedSet(orgs), Ids: sortedSet(budgets)})
	if err != nil {
		return err
	}
	for _, r := range free {
		p.purse.free[budget{r.OrgID, r.ID}] = money.Nano(r.Free)
	}
	return nil
}

// lockBalanceAllotments adds the organizations' balances to what voided epochs may be charged from.
func (p *pass) lockBalanceAllotments(ctx context.Context, orgs []ids.ID, wanted map[pot]bool) error {
	rows, err := p.q.BalancesOfOrgs(ctx, sortedSet(slices.Clone(orgs)))
	if err != nil {
		return err
	}
	for _, r := range rows {
		p.purse.balance[r.OrgID] = r.ID
	}
	for _, e := range p.finals {
		if id, ok := p.purse.balance[e.ev.Org]; ok && p.purse.voided(e.ev.Epoch) {
			wanted[pot{budget{e.ev.Org, id}, e.ev.Epoch}] = true
		}
	}
	return nil
}

func (p *pass) charge(context.Context) error {
	for _, e := range p.finals {
		p.purse.charge(e)
	}
	for t, used := range p.purse.used {
		p.moved[t.budget] += used
	}
	return nil
}

func (p *pass) useAllotments(ctx context.Context) error {
	if raised := slices.SortedFunc(maps.Keys(p.purse.raised), comparePots); len(raised) > 0 {
		c := columnsOf(raised)
		err := p.q.RaiseVoidedAllotments(ctx, q.RaiseVoidedAllotmentsParams{Orgs: c.orgs, Budgets: c.budgets, Epochs: c.epochs,
			Raised: amounts(raised, p.purse.raised)})
		if err != nil {
			return err
		}
	}
	maps.DeleteFunc(p.purse.used, func(_ pot, n money.Nano) bool { return n == 0 })
	used := slices.SortedFunc(maps.Keys(p.purse.used), comparePots)
	if len(used) == 0 {
		return nil
	}
	c := columnsOf(used)
	n, err := p.q.UseAllotments(ctx, q.UseAllotmentsParams{Orgs: c.orgs, Budgets: c.budgets, Epochs: c.epochs, Used: amounts(used, p.purse.used)})
	if err == nil && n != int64(len(used)) {
		err = fmt.Errorf("%d of %d allotments moved", n, len(used))
	}
	return err
}

// settleBudgets is the last step: what was charged is settled and no longer outstanding. What was raised for voided
// epochs was never outstanding before.
func (p *pass) settleBudgets(ctx context.Context) error {
	outstanding := make(map[budget]money.Nano, len(p.moved))
	for b, n := range p.moved {
		outstanding[b] = -n
	}
	for t, n := range p.purse.raised {
		outstanding[t.budget] += n
	}
	maps.DeleteFunc(outstanding, func(b budget, n money.Nano) bool { return n == 0 && p.moved[b] == 0 })
	if len(outstanding) == 0 {
		return nil
	}
	a := q.SettleBudgetsParams{}
	for _, b := range slices.SortedFunc(maps.Keys(outstanding), func(a, b budget) int { return compareIDs(a.id, b.id) }) {
		a.Orgs, a.Ids = append(a.Orgs, b.org), append(a.Ids, b.id)
		a.Settled, a.Outstanding = append(a.Settled, int64(p.moved[b])), append(a.Outstanding, int64(outstanding[b]))
	}
	settled, err := p.q.SettleBudgets(ctx, a)
	if err == nil && settled.Moved != int64(len(a.Ids)) {
		err = fmt.Errorf("%d of %d budgets moved", settled.Moved, len(a.Ids))
	}
	if err != nil || len(settled.Caps) == 0 {
		return err
	}
	// The rows are locked until the commit, so a threshold is noted by whoever passes it, once.
	return p.q.NoteAlerts(ctx, q.NoteAlertsParams{Orgs: settled.CapOrgs, Ids: settled.Caps})
}

// potColumns are the keys of allotments as the set-based statements take them.
type potColumns struct{ orgs, budgets, epochs []ids.ID }

func columnsOf(pots []pot) (c potColumns) {
	for _, t := range pots {
		c.orgs, c.budgets, c.epochs = append(c.orgs, t.org), append(c.budgets, t.id), append(c.epochs, t.epoch)
	}
	return c
}

func amounts(pots []pot, of map[pot]money.Nano) []int64 {
	list := make([]int64, len(pots))
	for i, t := range pots {
		list[i] = int64(of[t])
	}
	return list
}
