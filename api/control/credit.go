package control

import (
	"math"
	"time"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// CreditLimit is how much an organization may use beyond its credit.
type CreditLimit struct {
	LimitUSD string `json:"limit_usd"`
}

func (a *api) setCreditLimit(c *call, in CreditLimit) (none, error) {
	org, err := c.org()
	if err != nil {
		return none{}, err
	}
	limit, err := parseUSD("limit_usd", in.LimitUSD)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Credit.SetCreditLimit(c, c.actor, org, limit)
}

// Cap is the most a scope may spend in a period, and where it stands.
type Cap struct {
	Scope       string     `json:"scope"`
	ScopeID     string     `json:"scope_id"`
	Period      string     `json:"period"`
	Cap         Amount     `json:"cap"`
	Settled     Amount     `json:"settled"`
	Outstanding Amount     `json:"outstanding"`
	PeriodStart time.Time  `json:"period_start"`
	PeriodEnd   *time.Time `json:"period_end,omitempty"`
	AlertOnly   bool       `json:"alert_only"`
	Raised      *Amount    `json:"raised,omitempty"`
	RaisedUntil *time.Time `json:"raised_until,omitempty"`
}

// scopes gives the id prefix of each kind of scope.
var scopes = map[credit.Scope]string{credit.OrgScope: ids.Org, credit.ProjectScope: ids.Project, credit.KeyScope: ids.Key}

func capOf(c credit.CapUsage) Cap {
	out := Cap{Scope: string(c.Scope), ScopeID: ids.Format(scopes[c.Scope], c.ScopeID), Period: string(c.Period), Cap: amount(c.Amount),
		Settled: amount(c.Settled), Outstanding: amount(c.Outstanding), PeriodStart: c.Span.Start, PeriodEnd: optionalTime(c.Span.End),
		AlertOnly: c.AlertOnly, RaisedUntil: optionalTime(c.RaisedUntil)}
	if c.Raised > 0 {
		raised := amount(c.Raised)
		out.Raised = &raised
	}
	return out
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
	CapUSD    string `json:"cap_usd"`
	AlertOnly bool   `json:"alert_only,omitempty"`
}

// CapRaise allows more than a hard cap for a while.
type CapRaise struct {
	ToUSD    string `json:"to_usd"`
	ForHours int64  `json:"for_hours"`
}

func (a *api) raiseCap(c *call, in CapRaise) (Cap, error) {
	org, key, err := c.cap()
	if err != nil {
		return Cap{}, err
	}
	to, err := parseUSD("to_usd", in.ToUSD)
	if err != nil {
		return Cap{}, err
	}
	if in.ForHours < 1 || in.ForHours > int64(credit.MaxRaise/time.Hour) {
		return Cap{}, fault.New(fault.Invalid, "A raise lasts 1 to %d hours.", int64(credit.MaxRaise/time.Hour)).WithParam("for_hours")
	}
	found, err := a.findCap(c, org, key)
	if err != nil {
		return Cap{}, err
	}
	if _, err := a.Credit.RaiseCap(c, c.actor, org, found.ID, to, a.Clock.Now().Add(time.Duration(in.ForHours)*time.Hour)); err != nil {
		return Cap{}, err
	}
	set, err := a.findCap(c, org, key)
	return capOf(set), err
}

func (a *api) setCap(c *call, in CapLimit) (Cap, error) {
	org, key, err := c.cap()
	if err != nil {
		return Cap{}, err
	}
	if key.Amount, err = parseUSD("cap_usd", in.CapUSD); err != nil {
		return Cap{}, err
	}
	key.AlertOnly = in.AlertOnly
	if _, err = a.Credit.SetCap(c, c.actor, org, key); err != nil {
		return Cap{}, err
	}
	set, err := a.findCap(c, org, key)
	return capOf(set), err
}

func (a *api) removeCap(c *call) (none, error) {
	org, key, err := c.cap()
	if err != nil {
		return none{}, err
	}
	found, err := a.findCap(c, org, key)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Credit.RemoveCap(c, c.actor, org, found.ID)
}

// findCap gives the cap of a scope and period.
func (a *api) findCap(c *call, org ids.ID, key credit.Cap) (credit.CapUsage, error) {
	caps, err := a.Credit.Caps(c, c.actor, org)
	if err != nil {
		return credit.CapUsage{}, err
	}
	for _, found := range caps {
		if found.Scope == key.Scope && found.ScopeID == key.ScopeID && found.Period == key.Period {
			return found, nil
		}
	}
	return credit.CapUsage{}, fault.New(fault.NotFound, "There is no such cap.")
}

// cap reads a cap's scope and period from the path.
func (c *call) cap() (org ids.ID, key credit.Cap, err error) {
	if org, err = c.org(); err != nil {
		return ids.Nil, credit.Cap{}, err
	}
	key = credit.Cap{Scope: credit.Scope(c.param("scope")), Period: period.Kind(c.param("period"))}
	prefix, known := scopes[key.Scope]
	if !known {
		return ids.Nil, credit.Cap{}, fault.New(fault.NotFound, "A cap's scope is org, project or key.").WithParam("scope")
	}
	if !key.Period.Valid() {
		return ids.Nil, credit.Cap{}, fault.New(fault.NotFound, "A cap's period is total, day, week or month.").WithParam("period")
	}
	key.ScopeID, err = c.id("scope_id", prefix)
	return org, key, err
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

func grantOf(g credit.Grant) Grant {
	return Grant{ID: ids.Format(ids.Grant, g.ID), OrgID: ids.Format(ids.Org, g.Org), Kind: string(g.Kind), Amount: amount(g.Amount),
		Reason: g.Reason, CreatedBy: g.CreatedBy, CreatedAt: g.CreatedAt, ExpiresAt: g.ExpiresAt}
}

func (a *api) listGrants(c *call, _ none) (Page[Grant], error) {
	org, err := c.org()
	if err != nil {
		return Page[Grant]{}, err
	}
	grants, err := a.Credit.Grants(c, c.actor, org, tenants.MaxPage)
	return all(grants, grantOf), err
}

// NewGrant gives credit.
type NewGrant struct {
	AmountUSD string `json:"amount_usd"`
	Kind      string `json:"kind"`
	Reason    string `json:"reason"`

	ExpiresAt *time.Time `json:"expires_at,omitempty"` // absent = never
	Priority  int64      `json:"priority,omitempty"`
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
	ends, err := moment(in.ExpiresAt, "expires_at")
	if err != nil {
		return Grant{}, err
	}
	made, _, err := a.Credit.Grant(c, c.actor, credit.GrantInput{Org: org, Kind: credit.GrantKind(in.Kind), Amount: n, Reason: in.Reason, IdempotencyKey: c.idempotencyKey(),
		ExpiresAt: ends, Priority: int16(min(max(in.Priority, math.MinInt16), math.MaxInt16))})
	return grantOf(made), err
}

// moment is a moment that a body may leave out: zero = it did. The year 1 is what Go calls zero, and nobody's meaning.
func moment(t *time.Time, param string) (time.Time, error) {
	switch {
	case t == nil:
		return time.Time{}, nil
	case t.IsZero():
		return time.Time{}, fault.New(fault.Invalid, "%s lies in the year 1. Leave it out if none is meant.", param).WithParam(param)
	}
	return t.UTC(), nil
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
