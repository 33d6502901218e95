package control

import (
	"time"

	"millrace/internal/ids"
	"millrace/tenants/keys"
)

// Key is an API key; never its secret.
type Key struct {
	ID         string     `json:"id"`
	OrgID      string     `json:"org_id"`
	ProjectID  string     `json:"project_id"`
	Name       string     `json:"name"`
	Prefix     string     `json:"prefix"`
	Last4      string     `json:"last4"`
	Status     string     `json:"status"`
	Limits     KeyLimits  `json:"limits"`
	CreatedBy  string     `json:"created_by,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

// KeyLimits bound a key's rate; 0 = no limit.
type KeyLimits struct {
	RPM         int64 `json:"rpm,omitempty"`
	TPM         int64 `json:"tpm,omitempty"`
	Concurrency int64 `json:"concurrency,omitempty"`
}

func (a *api) keyOf(k keys.Key) Key {
	return Key{ID: ids.Format(ids.Key, k.ID), OrgID: ids.Format(ids.Org, k.Org), ProjectID: ids.Format(ids.Project, k.Project),
		Name: k.Name, Prefix: k.Prefix, Last4: k.Last4, Status: k.Status(a.Clock.Now()), Limits: KeyLimits(k.Limits),
		CreatedBy: format(ids.User, k.CreatedBy), CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, LastUsedAt: k.LastUsedAt}
}

// KeyQuery filters keys.
type KeyQuery struct {
	ProjectID string `json:"project_id,omitempty"`
	Cursor    string `json:"cursor,omitempty"`
	Limit     int    `json:"limit,omitempty"`
}

func (a *api) listKeys(c *call, q KeyQuery) (Page[Key], error) {
	org, err := c.org()
	if err != nil {
		return Page[Key]{}, err
	}
	project, err := parseRef("project_id", ids.Project, q.ProjectID)
	if err != nil {
		return Page[Key]{}, err
	}
	before, limit, err := PageQuery{q.Cursor, q.Limit}.bounds(ids.Key)
	if err != nil {
		return Page[Key]{}, err
	}
	found, err := a.Keys.Keys(c, c.actor, org, project, before, limit)
	return pageOf(found, limit, a.keyOf, func(k keys.Key) string { return ids.Format(ids.Key, k.ID) }), err
}

// NewKey makes a key.
type NewKey struct {
	Name      string     `json:"name"`
	ProjectID string     `json:"project_id"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Limits    KeyLimits  `json:"limits,omitempty"`
}

// CreatedKey is a new key and its secret, which is shown here only.
type CreatedKey struct {
	Key    Key    `json:"key"`
	Secret string `json:"secret"`
}

func (a *api) createKey(c *call, in NewKey) (CreatedKey, error) {
	org, err := c.org()
	if err != nil {
		return CreatedKey{}, err
	}
	project, err := parseRef("project_id", ids.Project, in.ProjectID)
	if err != nil {
		return CreatedKey{}, err
	}
	k := keys.NewKey{Org: org, Project: project, Name: in.Name, Limits: keys.Limits(in.Limits)}
	if in.ExpiresAt != nil {
		k.ExpiresAt = *in.ExpiresAt
	}
	made, secret, err := a.Keys.Create(c, c.actor, k)
	return CreatedKey{Key: a.keyOf(made), Secret: secret}, err
}

func (a *api) getKey(c *call, _ none) (Key, error) {
	org, id, err := c.inOrg("key", ids.Key)
	if err != nil {
		return Key{}, err
	}
	k, err := a.Keys.Key(c, c.actor, org, id)
	return a.keyOf(k), err
}

// KeyChange changes what it names.
type KeyChange struct {
	Name         *string    `json:"name,omitempty"`
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
	NeverExpires bool       `json:"never_expires,omitempty"`
	Limits       *KeyLimits `json:"limits,omitempty"`
}

func (a *api) updateKey(c *call, in KeyChange) (Key, error) {
	org, id, err := c.inOrg("key", ids.Key)
	if err != nil {
		return Key{}, err
	}
	change := keys.Change{Name: in.Name, ExpiresAt: in.ExpiresAt}
	if in.NeverExpires {
		change.ExpiresAt = new(time.Time)
	}
	if in.Limits != nil {
		l := keys.Limits(*in.Limits)
		change.Limits = &l
	}
	k, err := a.Keys.Update(c, c.actor, org, id, change)
	return a.keyOf(k), err
}

func (a *api) revokeKey(c *call) (Key, error) {
	org, id, err := c.inOrg("key", ids.Key)
	if err != nil {
		return Key{}, err
	}
	k, err := a.Keys.Revoke(c, c.actor, org, id)
	return a.keyOf(k), err
}
