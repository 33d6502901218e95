package credit

import (
	"context"
	"errors"
	"slices"
	"time"

	"millrace/billing/period"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// question is what a wallet must ask the database before its line can go on: the caps, when they are stale, and the
// budgets of payers that have no route yet.
type question struct {
	stale  bool
	caps   map[scopeKey][]period.Kind // as known, when they are not stale
	payers []Payer
	joins  []need   // budgets of caps that are new to running holds
	pots   []ids.ID // whose caps are read again when stale
	now    time.Time
}

// lesson is the answer.
type lesson struct {
	caps    map[scopeKey][]period.Kind
	budgets []found
	pots    map[ids.ID]look // at the pots that were asked for
	partial bool            // a budget could not be made: its cap is gone
}

type look struct{ cap, headroom money.Nano }

type found struct {
	id            ids.ID
	need          need
	cap, headroom money.Nano
}

// errNoSuchOrg says that an organization has no row.
var errNoSuchOrg = errors.New("credit: there is no such organization")

// question says what must be asked, nil when nothing. The caller holds the mutex and has served the line.
func (w *wallet) question(now time.Time) *question {
	ask := &question{stale: w.stale, caps: w.caps, now: now}
	seen := make(map[ids.ID]bool)
	for _, x := range w.waiting {
		if x.hold != nil {
			joins, _ := x.hold.unjoined(now)
			ask.joins = append(ask.joins, joins...)
			continue
		}
		if seen[x.payer.Key] {
			continue
		}
		if r, _ := w.route(&x.payer, now); r == nil {
			seen[x.payer.Key] = true
			ask.payers = append(ask.payers, x.payer)
		}
	}
	ask.joins = slices.DeleteFunc(ask.joins, func(n need) bool { return w.byKey[n.key] != nil })
	if !ask.stale && len(ask.payers) == 0 && len(ask.joins) == 0 {
		return nil
	}
	if w.stale {
		w.stale = false // a notice that comes meanwhile makes it stale again
		for id := range w.pots {
			ask.pots = append(ask.pots, id)
		}
	}
	return ask
}

// learn asks, takes over the answer, and returns what caps that fell or went leave idle. The caller has the turn.
func (a *Allotments) learn(ctx context.Context, w *wallet, ask *question) error {
	answer, err := a.store.ask(ctx, w.org, ask)
	w.mu.Lock()
	if err != nil {
		w.stale = w.stale || ask.stale
		w.mu.Unlock()
		return err
	}
	fallen := w.take(ask, answer)
	w.mu.Unlock()
	if len(fallen) > 0 {
		return a.giveBack(ctx, w, func(p *pot) money.Nano {
			if fallen[p] {
				return p.free()
			}
			return 0
		})
	}
	return nil
}

// take takes over an answer and gives the pots whose cap fell or went.
func (w *wallet) take(ask *question, answer *lesson) (fallen map[*pot]bool) {
	fallen = make(map[*pot]bool)
	if ask.stale {
		w.caps = answer.caps
		w.learned++
		clear(w.routes)
		for _, p := range w.pots {
			if p.key.kind == kindCap && !slices.Contains(w.caps[scopeKey{p.key.scope, p.key.scopeID}], p.key.period) {
				fallen[p] = true
			}
		}
		for id, seen := range answer.pots {
			p := w.pots[id]
			fallen[p] = fallen[p] || seen.cap < p.cap
			p.cap, p.headroom, p.refusedUntil = seen.cap, seen.headroom, time.Time{}
		}
		for _, x := range w.waiting { // there may be room now
			x.parked = false
		}
	}
	for _, b := range answer.budgets {
		w.addPot(b, ask.now)
	}
	w.stale = w.stale || answer.partial
	return fallen
}

// ask reads the caps if they are stale, and finds or makes the payers' budgets of the running periods.
func (s store) ask(ctx context.Context, org ids.ID, ask *question) (answer *lesson, err error) {
	err = s.inTx(ctx, "find budgets", func(queries *q.Queries) error {
		answer = &lesson{caps: ask.caps, pots: make(map[ids.ID]look)}
		if ask.stale {
			if answer.caps, err = readCaps(ctx, queries, org); err != nil {
				return err
			}
			rows, err := queries.BudgetCaps(ctx, q.BudgetCapsParams{OrgID: org, Ids: ask.pots})
			if err != nil {
				return err
			}
			for _, r := range rows {
				answer.pots[r.ID] = look{money.Nano(r.CapNano), money.Nano(r.HeadroomNano)}
			}
		}
		wanted := make(map[budgetKey]need)
		for i := range ask.payers {
			list, err := needs(&ask.payers[i], answer.caps, ask.now)
			if err != nil {
				return err
			}
			for _, n := range list {
				wanted[n.key] = n
			}
		}
		for _, n := range ask.joins {
			wanted[n.key] = n
		}
		answer.budgets, err = findOrMake(ctx, queries, org, wanted)
		answer.partial = len(answer.budgets) < len(wanted)
		return err
	})
	return answer, err
}

func readCaps(ctx context.Context, queries *q.Queries, org ids.ID) (map[scopeKey][]period.Kind, error) {
	rows, err := queries.Caps(ctx, org)
	if err != nil {
		return nil, err
	}
	caps := make(map[scopeKey][]period.Kind)
	for _, r := range rows {
		k := scopeKey{Scope(r.Scope), r.ScopeID}
		caps[k] = append(caps[k], period.Kind(r.Period))
	}
	return caps, nil
}

// findOrMake gives the budgets that exist after it. A cap that has just been removed has none.
func findOrMake(ctx context.Context, queries *q.Queries, org ids.ID, wanted map[budgetKey]need) ([]found, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	list, missing, err := find(ctx, queries, org, wanted)
	if err != nil || len(missing) == 0 {
		return list, err
	}
	fresh := q.EnsureCapBudgetsParams{OrgID: org, NoCap: int64(MaxCap)}
	for _, n := range missing {
		if n.key.kind == kindBalance {
			if err := queries.EnsureBalanceBudget(ctx, q.EnsureBalanceBudgetParams{OrgID: org, ID: ids.New(), PeriodStart: period.TotalStart}); err != nil {
				return nil, err
			}
			continue
		}
		fresh.Ids = append(fresh.Ids, ids.New())
		fresh.Scopes = append(fresh.Scopes, string(n.key.scope))
		fresh.ScopeIds = append(fresh.ScopeIds, n.key.scopeID)
		fresh.Periods = append(fresh.Periods, string(n.key.period))
		fresh.Starts = append(fresh.Starts, n.span.Start)
	}
	if err := queries.EnsureCapBudgets(ctx, fresh); err != nil {
		return nil, err
	}
	list, missing, err = find(ctx, queries, org, wanted)
	for _, n := range missing {
		if n.key.kind == kindBalance {
			return nil, errNoSuchOrg
		}
	}
	return list, err
}

func find(ctx context.Context, queries *q.Queries, org ids.ID, wanted map[budgetKey]need) (list []found, missing []need, err error) {
	p := q.FindBudgetsParams{OrgID: org}
	for _, n := range wanted {
		p.ScopeIds = append(p.ScopeIds, n.key.scopeID)
		p.Starts = append(p.Starts, n.span.Start)
	}
	rows, err := queries.FindBudgets(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	have := make(map[budgetKey]bool)
	for _, r := range rows {
		k := budgetKey{r.Kind, Scope(r.Scope), r.ScopeID, period.Kind(r.Period), r.PeriodStart.Unix()}
		if n, ok := wanted[k]; ok {
			list = append(list, found{r.ID, n, money.Nano(r.CapNano), money.Nano(r.HeadroomNano)})
			have[k] = true
		}
	}
	for k, n := range wanted {
		if !have[k] {
			missing = append(missing, n)
		}
	}
	return list, missing, nil
}
