package rate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/price"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// facts is what a batch needs to know of customers, models and prices, read in its own transaction.
type facts struct {
	books    map[ids.ID]string // by organization: its own
	agreed   price.Contracts
	contexts map[ids.ID]int64 // by model, in tokens
	versions map[ids.ID]price.Version
	schedule map[shelf][]price.Version // that stand, by effective_at
}

// shelf is the prices of one model in one book.
type shelf struct {
	model ids.ID
	book  string
}

func readFacts(ctx context.Context, tx pgx.Tx, entries []*entry) (*facts, error) {
	orgs, models := make([]ids.ID, 0, len(entries)), make([]ids.ID, 0, len(entries))
	for _, e := range entries {
		orgs, models = append(orgs, e.ev.Org), append(models, e.ev.Model)
	}
	orgs, models = sortedSet(orgs), sortedSet(models)
	f := &facts{books: make(map[ids.ID]string, len(orgs)), contexts: make(map[ids.ID]int64, len(models)),
		versions: map[ids.ID]price.Version{}, schedule: map[shelf][]price.Version{}}
	queries := q.New(tx)
	books, err := queries.BooksOfOrgs(ctx, orgs)
	if err != nil {
		return nil, fmt.Errorf("rate: organizations: %w", err)
	}
	for _, b := range books {
		f.books[b.OrgID] = b.PriceBook
	}
	if f.agreed, err = price.ContractsOf(ctx, tx, orgs); err != nil {
		return nil, err
	}
	contexts, err := queries.ContextOfModels(ctx, models)
	if err != nil {
		return nil, fmt.Errorf("rate: models: %w", err)
	}
	for _, m := range contexts {
		f.contexts[m.ID] = m.ContextTokens
	}
	versions, err := price.OfModels(ctx, tx, models)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		f.versions[v.ID] = v
		if v.CancelledAt == nil {
			key := shelf{v.Model, v.Book}
			f.schedule[key] = append(f.schedule[key], v)
		}
	}
	return f, nil
}

// judge prices an event, or says why it cannot be booked.
func (f *facts) judge(e *entry) {
	ev := &e.ev
	e.cost, e.saved, e.charged, e.overrun, e.txn = 0, 0, 0, 0, ids.Nil // a batch may be tried again
	book, known := f.books[ev.Org]
	context, sold := f.contexts[ev.Model]
	switch {
	case !known:
		e.reason = "its organization does not exist"
	case !sold:
		e.reason = "its model does not exist"
	case ev.Usage.Tokens() > context+maxContextSlack:
		e.reason = fmt.Sprintf("%d tokens do not fit the model's context of %d", ev.Usage.Tokens(), context)
	}
	if e.reason != "" {
		return
	}
	e.version = ev.PriceVersion
	contract, agreed := f.agreed.Book(ev.Org, time.UnixMilli(ev.StartedMS))
	if agreed {
		book = contract
	}
	applied, repriced := f.applied(ev, book, agreed)
	e.repriced = repriced
	if len(applied) == 0 { // nothing was on sale: the customer owes nothing
		return
	}
	cheapest := money.MaxPico
	for _, v := range applied {
		prices := v.PricesOf(ev) // a tier that it does not offer costs what others pay
		cost, ok := prices.Cost(ev.Usage)
		if !ok {
			e.reason = "its cost is impossible"
			return
		}
		if cost < cheapest {
			cheapest, e.version, e.saved = cost, v.ID, saved(ev.Usage, &prices)
		}
	}
	if e.cost = cheapest.Nano(); ev.Ending == usage.FailedUnbilled {
		e.cost, e.saved = 0, 0
	}
}

// applied gives the versions of which the cheapest counts. Usually that is the one the request pinned. When it is not
// what was in effect at the request's start (cancelled, not yet effective, replaced, unknown, by a contract that did not
// hold, not by the one that did), the version in effect competes with it, so that a gateway's old schedule is never to the
// customer's cost. agreed says that the book is a contract's; without one, that of a customer who was just given another
// book is as good.
func (f *facts) applied(ev *usage.Event, book string, agreed bool) (candidates []price.Version, repriced bool) {
	right, onSale := f.inEffect(ev.Model, book, ev.StartedMS)
	pinned, exists := f.versions[ev.PriceVersion]
	exists = exists && pinned.Model == ev.Model
	switch {
	case exists && onSale && pinned.ID == right.ID:
		return []price.Version{pinned}, false
	case exists && !agreed && !f.agreed.Names(ev.Org, pinned.Book):
		if own, ok := f.inBook(shelf{ev.Model, pinned.Book}, ev.StartedMS); ok && own.ID == pinned.ID {
			return []price.Version{pinned}, false
		}
	}
	if !onSale {
		return nil, true
	}
	if exists {
		return []price.Version{pinned, right}, true
	}
	return []price.Version{right}, true
}

// inEffect is the version in effect at a moment: the customer's book before the standard one.
func (f *facts) inEffect(model ids.ID, book string, ms int64) (price.Version, bool) {
	if v, ok := f.inBook(shelf{model, book}, ms); ok {
		return v, true
	}
	return f.inBook(shelf{model, price.Standard}, ms)
}

// inBook compares whole milliseconds, which is what events carry.
func (f *facts) inBook(s shelf, ms int64) (price.Version, bool) {
	list := f.schedule[s]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].EffectiveAt.UnixMilli() <= ms {
			return list[i], true
		}
	}
	return price.Version{}, false
}

// saved is what the cached tokens would have cost more as input.
func saved(v usage.Vector, p *usage.Prices) money.Nano {
	less := p[usage.Input] - p[usage.Cached]
	if less <= 0 {
		return 0
	}
	cost, ok := money.Cost(v[usage.Cached], less)
	if !ok {
		return 0
	}
	return cost.Nano()
}

// sortedSet sorts ids and removes doubles.
func sortedSet(list []ids.ID) []ids.ID {
	slices.SortFunc(list, compareIDs)
	return slices.Compact(list)
}

// daysOf gives the days of the entries and of the ledger transactions to come.
func daysOf(entries []*entry, now time.Time) []time.Time {
	days := []time.Time{now.UTC().Truncate(24 * time.Hour)}
	for _, e := range entries {
		if !slices.Contains(days, e.day) {
			days = append(days, e.day)
		}
	}
	return days
}
