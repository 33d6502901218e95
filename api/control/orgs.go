package control

import (
	"encoding/json"
	"time"

	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Org is a customer as the API shows it.
type Org struct {
	ID            string     `json:"id"`
	Name          string     `json:"name"`
	TimeZone      string     `json:"time_zone"`
	FailurePolicy string     `json:"failure_policy"`
	PriceBook     string     `json:"price_book"`
	CreditLimit   Amount     `json:"credit_limit"`
	CreatedAt     time.Time  `json:"created_at"`
	SuspendedAt   *time.Time `json:"suspended_at,omitempty"`
	Balance       *Balance   `json:"balance,omitempty"` // when one organization is asked for
}

// Balance is an organization's money.
type Balance struct {
	Paid        Amount `json:"paid"`
	Promotional Amount `json:"promotional"`
	Receivable  Amount `json:"receivable"`
	Available   Amount `json:"available"`
	Outstanding Amount `json:"outstanding"`
}

func orgOf(o tenants.Org) Org {
	return Org{ID: ids.Format(ids.Org, o.ID), Name: o.Name, TimeZone: o.TimeZone, FailurePolicy: o.FailurePolicy,
		PriceBook: o.PriceBook, CreditLimit: amount(o.CreditLimit), CreatedAt: o.CreatedAt, SuspendedAt: o.SuspendedAt}
}

// OrgQuery filters organizations.
type OrgQuery struct {
	Search string `json:"search,omitempty"`
	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

func (a *api) listOrgs(c *call, q OrgQuery) (Page[Org], error) {
	before, limit, err := PageQuery{q.Cursor, q.Limit}.bounds(ids.Org)
	if err != nil {
		return Page[Org]{}, err
	}
	orgs, err := a.Tenants.Orgs(c, c.actor, q.Search, before, limit)
	return pageOf(orgs, limit, orgOf, func(o tenants.Org) string { return ids.Format(ids.Org, o.ID) }), err
}

// NewOrg makes an organization.
type NewOrg struct {
	Name          string `json:"name"`
	TimeZone      string `json:"time_zone,omitempty"`
	FailurePolicy string `json:"failure_policy,omitempty"`
	PriceBook     string `json:"price_book,omitempty"`
	OwnerEmail    string `json:"owner_email,omitempty"`
}

func (a *api) createOrg(c *call, in NewOrg) (Org, error) {
	org, err := a.Tenants.CreateOrg(c, c.actor, tenants.NewOrg{Name: in.Name, TimeZone: in.TimeZone, FailurePolicy: in.FailurePolicy,
		PriceBook: in.PriceBook, Owner: in.OwnerEmail, IdempotencyKey: c.idempotencyKey()})
	return orgOf(org), err
}

func (a *api) getOrg(c *call, _ none) (Org, error) {
	id, err := c.org()
	if err != nil {
		return Org{}, err
	}
	org, err := a.Tenants.Org(c, c.actor, id)
	if err != nil {
		return Org{}, err
	}
	b, err := a.Credit.Balance(c, c.actor, id)
	if err != nil {
		return Org{}, err
	}
	out := orgOf(org)
	out.Balance = &Balance{Paid: amount(b.Paid), Promotional: amount(b.Promo), Receivable: amount(b.Receivable),
		Available: amount(b.Available), Outstanding: amount(b.Outstanding)}
	return out, nil
}

// OrgChange changes what it names.
type OrgChange struct {
	Name          *string `json:"name,omitempty"`
	TimeZone      *string `json:"time_zone,omitempty"`
	FailurePolicy *string `json:"failure_policy,omitempty"`
	PriceBook     *string `json:"price_book,omitempty"`
}

func (a *api) updateOrg(c *call, in OrgChange) (Org, error) {
	id, err := c.org()
	if err != nil {
		return Org{}, err
	}
	org, err := a.Tenants.UpdateOrg(c, c.actor, id, tenants.OrgChange(in))
	return orgOf(org), err
}

func (a *api) suspendOrg(c *call) (Org, error) {
	id, err := c.org()
	if err != nil {
		return Org{}, err
	}
	org, err := a.Tenants.SuspendOrg(c, c.actor, id)
	return orgOf(org), err
}

func (a *api) restoreOrg(c *call) (Org, error) {
	id, err := c.org()
	if err != nil {
		return Org{}, err
	}
	org, err := a.Tenants.RestoreOrg(c, c.actor, id)
	return orgOf(org), err
}

// AuditEntry is a change and who made it.
type AuditEntry struct {
	ID        string          `json:"id"`
	At        time.Time       `json:"at"`
	Actor     string          `json:"actor"`
	ActingAs  string          `json:"acting_as,omitempty"`
	Action    string          `json:"action"`
	Target    string          `json:"target"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	IP        string          `json:"ip,omitempty"`
}

const auditPrefix = "audit"

func (a *api) listAudit(c *call, q PageQuery) (Page[AuditEntry], error) {
	org, err := c.org()
	if err != nil {
		return Page[AuditEntry]{}, err
	}
	before, limit, err := q.bounds(auditPrefix)
	if err != nil {
		return Page[AuditEntry]{}, err
	}
	entries, err := a.Tenants.Audit(c, c.actor, org, before, limit)
	return pageOf(entries, limit, func(e audit.Entry) AuditEntry {
		return AuditEntry{ID: ids.Format(auditPrefix, e.ID), At: e.At, Actor: e.By.Actor, ActingAs: e.By.ActingAs, Action: e.Action,
			Target: e.Target, Before: e.Before, After: e.After, RequestID: e.By.RequestID, IP: e.By.IP}
	}, func(e audit.Entry) string { return ids.Format(auditPrefix, e.ID) }), err
}
