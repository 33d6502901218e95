package credit

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Payer is who pays for a request: every scope whose budgets apply.
type Payer struct {
	Org, Project, Key ids.ID
	TimeZone          string // IANA name: the organization's periods are computed in it
}

type scopeKey struct {
	scope Scope
	id    ids.ID
}

// route is the pots that a key's requests are paid from. It is made anew when a period ends or a cap comes or goes; a
// hold keeps the one it was taken by, and adds what is capped anew (join.go).
type route struct {
	project, key ids.ID
	zone         string

	pots    []*pot // by budget id
	budgets []ids.ID
	balance ids.ID
	until   time.Time // when its first period ends; zero = never
}

func (r *route) serves(p *Payer, now time.Time) bool {
	return r.project == p.Project && r.zone == p.TimeZone && (r.until.IsZero() || now.Before(r.until))
}

// fits reports whether every pot has the amount free.
func (r *route) fits(amount money.Nano) bool {
	for _, p := range r.pots {
		if p.spendable() < amount {
			return false
		}
	}
	return true
}

// stretching reports whether an extension waits for one of the pots.
func (r *route) stretching() bool {
	for _, p := range r.pots {
		if p.stretching {
			return true
		}
	}
	return false
}

// need is one budget that a payer's route is made of.
type need struct {
	key  budgetKey
	span period.Span
}

// needs lists the budgets of a payer at a moment: the balance and every cap on its key, project and organization.
func needs(p *Payer, caps map[scopeKey][]period.Kind, now time.Time) ([]need, error) {
	zone, err := period.Zone(p.TimeZone)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "Something is wrong with the organization's time zone.")
	}
	total := period.At(period.Total, zone, now)
	list := []need{{key: budgetKey{kindBalance, OrgScope, p.Org, period.Total, total.Start.Unix()}, span: total}}
	for _, scope := range []scopeKey{{OrgScope, p.Org}, {ProjectScope, p.Project}, {KeyScope, p.Key}} {
		for _, kind := range caps[scope] {
			span := period.At(kind, zone, now)
			list = append(list, need{key: budgetKey{kindCap, scope.scope, scope.id, kind, span.Start.Unix()}, span: span})
		}
	}
	return list, nil
}

// maxRoutes bounds the keys that a wallet remembers.
const maxRoutes = 10_000

// route finds or makes the payer's route. nil without an error: the database must be asked first (learn).
func (w *wallet) route(p *Payer, now time.Time) (*route, error) {
	if r := w.routes[p.Key]; r != nil && r.serves(p, now) {
		return r, nil
	}
	if w.caps == nil {
		return nil, nil
	}
	list, err := needs(p, w.caps, now)
	if err != nil {
		return nil, err
	}
	r := &route{project: p.Project, key: p.Key, zone: p.TimeZone}
	for _, n := range list {
		pot := w.byKey[n.key]
		if pot == nil {
			return nil, nil
		}
		r.pots = append(r.pots, pot)
		if n.key.kind == kindBalance {
			r.balance = pot.budget
		}
		if end := n.span.End; !end.IsZero() && (r.until.IsZero() || end.Before(r.until)) {
			r.until = end
		}
	}
	r.sort()
	if len(w.routes) >= maxRoutes {
		clear(w.routes) // short-lived keys come and go; making a route anew is cheap
	}
	w.routes[p.Key] = r
	return r, nil
}

// sort lists the pots by their budgets, as locks are taken.
func (r *route) sort() {
	slices.SortFunc(r.pots, func(a, b *pot) int { return bytes.Compare(a.budget[:], b.budget[:]) })
	for _, pot := range r.pots {
		r.budgets = append(r.budgets, pot.budget)
	}
}

// addPot remembers a budget that the database has.
func (w *wallet) addPot(b found, now time.Time) {
	if p := w.byKey[b.need.key]; p != nil {
		p.cap = b.cap
		return
	}
	p := &pot{budget: b.id, key: b.need.key, span: b.need.span, cap: b.cap, headroom: b.headroom, lastUse: now, began: now}
	w.pots[b.id], w.byKey[b.need.key] = p, p
}

// refusal says in words which budget does not suffice, what of it is left, and when it begins anew.
func refusal(p *pot, zone string) error {
	left := max(0, p.free()+p.headroom)
	whose := map[Scope]string{OrgScope: "organization", ProjectScope: "project", KeyScope: "API key"}[p.key.scope]
	if p.key.kind == kindBalance {
		message := "The organization's credit is used up. Add credit to continue."
		if left > 0 {
			message = fmt.Sprintf("The organization's credit does not cover this request: %s USD is left. Add credit, or lower the request's maximum of output tokens.", left)
		}
		return fault.New(fault.OutOfCredit, "%s", message).WithCode("insufficient_quota").WithBudget(fault.Budget{Scope: kindBalance, RemainingUSD: left.String()})
	}
	adjective := map[period.Kind]string{period.Day: "daily ", period.Week: "weekly ", period.Month: "monthly "}[p.key.period]
	message := fmt.Sprintf("The %s's %sbudget of %s USD is used up.", whose, adjective, p.cap)
	if left > 0 {
		message = fmt.Sprintf("What is left of the %s's %sbudget of %s USD does not cover this request: %s USD.", whose, adjective, p.cap, left)
	}
	if !p.span.End.IsZero() {
		end := p.span.End
		if z, err := period.Zone(zone); err == nil {
			end = end.In(z)
		}
		message += " It resets on " + end.Format("2 January 2006 at 15:04") + " (" + zone + ")."
	}
	return fault.New(fault.OutOfCredit, "%s", message).WithCode("insufficient_quota").
		WithBudget(fault.Budget{Scope: string(p.key.scope), LimitUSD: p.cap.String(), RemainingUSD: left.String(), Reset: p.span.End})
}
