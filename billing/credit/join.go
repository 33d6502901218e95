package credit

import (
	"slices"
	"time"
)

// join is the route of a hold with the caps on its key, project and organization that were set since it was taken. Such a cap
// counts the whole hold. nil without an error: the database must be asked first (learn). The caller holds the wallet's mutex.
func (h *Hold) join(now time.Time) (*route, error) {
	list, err := h.unjoined(now)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		h.learned = h.wallet.learned
		return h.route, nil
	}
	r := &route{project: h.route.project, key: h.route.key, zone: h.route.zone, pots: slices.Clone(h.route.pots), balance: h.route.balance}
	for _, n := range list {
		p := h.wallet.byKey[n.key]
		if p == nil {
			return nil, nil
		}
		r.pots = append(r.pots, p)
	}
	r.sort()
	return r, nil
}

// unjoined lists the budgets of caps that are new to the hold. A request is of the periods that it began in: one that is over has
// no use for a cap, and the next one does not count it.
func (h *Hold) unjoined(now time.Time) ([]need, error) {
	w, r := h.wallet, h.route
	if h.learned == w.learned || w.caps == nil {
		return nil, nil
	}
	list, err := needs(&Payer{Org: w.org, Project: r.project, Key: r.key, TimeZone: r.zone}, w.caps, h.began)
	return slices.DeleteFunc(list, func(n need) bool {
		over := !n.span.End.IsZero() && !now.Before(n.span.End)
		return over || slices.ContainsFunc(r.pots, func(p *pot) bool {
			return p.key.kind == n.key.kind && p.key.scope == n.key.scope && p.key.scopeID == n.key.scopeID && p.key.period == n.key.period
		})
	}), err
}
