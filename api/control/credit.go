package control

import (
	"time"

	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Cap is the most a scope may spend in a period.
type Cap struct {
	Scope       string     `json:"scope"`
	ScopeID     string     `json:"scope_id"`
	Period      string     `json:"period"`
	Cap         Amount     `json:"cap"`
	Spent       Amount     `json:"spent"`
	Held        Amount     `json:"held"`
	PeriodStart time.Time  `json:"period_start"`
	PeriodEnd   *time.Time `json:"period_end,omitempty"`
}

// scopes gives the id prefix of each kind of scope.
var scopes = map[string]string{"org": ids.Org, "project": ids.Project, "key": ids.Key}

func capOf(c CapInfo) Cap {
	return Cap{Scope: c.Scope, ScopeID: ids.Format(scopes[c.Scope], c.ID), Period: string(c.Period), Cap: amount(c.Limit),
		Spent: amount(c.Spent), Held: amount(c.Held), PeriodStart: c.PeriodStart, PeriodEnd: optionalTime(c.PeriodEnd)}
}

func (a *api) listCaps(c *call, _ none) (Page[Cap], error) {
	org, err := c.org()
	if err != nil {
		return Page[Cap]{}, err
	}
	caps, err := a.Credit.Caps(c, c.actor, org)
	return all(caps, capOf), err
}

// CapLimit is a cap's amount.
type CapLimit struct {
	CapUSD string `json:"cap_usd"`
}

func (a *api) setCap(c *call, in CapLimit) (Cap, error) {
	key, err := c.capKey()
	if err != nil {
		return Cap{}, err
	}
	limit, err := parseUSD("cap_usd", in.CapUSD)
	if err != nil {
		return Cap{}, err
	}
	set, err := a.Credit.SetCap(c, c.actor, key, limit)
	return capOf(set), err
}

func (a *api) removeCap(c *call) (none, error) {
	key, err := c.capKey()
	if err != nil {
		return none{}, err
	}
	return none{}, a.Credit.RemoveCap(c, c.actor, key)
}

func (c *call) capKey() (k CapKey, err error) {
	if k.Org, err = c.org(); err != nil {
		return CapKey{}, err
	}
	k.Scope = c.param("scope")
	prefix, known := scopes[k.Scope]
	if !known {
		return CapKey{}, fault.New(fault.NotFound, "A cap's scope is org, project or key.").WithParam("scope")
	}
	if k.Period = period.Kind(c.param("period")); !k.Period.Valid() {
		return CapKey{}, fault.New(fault.NotFound, "A cap's period is total, day, week or month.").WithParam("period")
	}
	if k.ID, err = c.id("scope_id", prefix); err != nil {
		return CapKey{}, err
	}
	if k.Scope == "org" && k.ID != k.Org {
		return CapKey{}, fault.New(fault.NotFound, "The scope is another organization.").WithParam("scope_id")
	}
	return k, nil
}

// Grant is credit given to a customer.
type Grant struct {
	ID        string     `json:"id"`
	OrgID     string     `json:"org_id"`
	Kind      string     `json:"kind"`
	Amount    Amount     `json:"amount"`
	Reason    string     `json:"reason"`
	CreatedBy string     `json:"created_by"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

func grantOf(g GrantInfo) Grant {
	return Grant{ID: ids.Format(ids.Grant, g.ID), OrgID: ids.Format(ids.Org, g.Org), Kind: g.Kind, Amount: amount(g.Amount),
		Reason: g.Reason, CreatedBy: g.CreatedBy, CreatedAt: g.CreatedAt, ExpiresAt: optionalTime(g.ExpiresAt)}
}

func (a *api) listGrants(c *call, q PageQuery) (Page[Grant], error) {
	org, err := c.org()
	if err != nil {
		return Page[Grant]{}, err
	}
	before, limit, err := q.bounds(ids.Grant)
	if err != nil {
		return Page[Grant]{}, err
	}
	grants, err := a.Credit.Grants(c, c.actor, org, before, limit)
	return pageOf(grants, limit, grantOf, func(g GrantInfo) string { return ids.Format(ids.Grant, g.ID) }), err
}

// NewGrant gives credit.
type NewGrant struct {
	AmountUSD string     `json:"amount_usd"`
	Kind      string     `json:"kind"`
	Reason    string     `json:"reason"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

func (a *api) createGrant(c *call, in NewGrant) (Grant, error) {
	org, err := c.org()
	if err != nil {
		return Grant{}, err
	}
	n, err := parseUSD("amount_usd", in.AmountUSD)
	if err != nil {
		return Grant{}, err
	}
	g := GrantInput{Org: org, Kind: in.Kind, Amount: n, Reason: in.Reason, IdempotencyKey: c.idempotencyKey()}
	if in.ExpiresAt != nil {
		g.ExpiresAt = in.ExpiresAt.UTC()
	}
	made, err := a.Credit.Grant(c, c.actor, g)
	return grantOf(made), err
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
