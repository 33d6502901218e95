package domain

import (
	"context"
	"time"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/billing/report"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/keys"
	"millrace/web/console"
	"millrace/web/session"
)

// maxKeys is how many keys a list shows: all that can be alive, and the newest of those that are not.
const maxKeys = 1000

// facts is what lists of keys and projects say beside the things themselves.
type facts struct {
	spend    report.Spend
	caps     map[ids.ID]credit.Cap
	projects []tenants.Project
	people   map[ids.ID]string // addresses of members
	models   map[ids.ID]string
}

// facts reads them for the running month of the organization's zone.
func (c customer) facts(ctx context.Context, who session.Viewer) (*facts, error) {
	return c.factsIn(ctx, member(who), who.Org, who.Location())
}

// factsIn reads them for the running month of a zone.
func (d *Deps) factsIn(ctx context.Context, by tenants.Actor, org ids.ID, zone *time.Location) (*facts, error) {
	f := &facts{people: map[ids.ID]string{}, models: map[ids.ID]string{}}
	var err error
	if f.spend, err = d.Report.Spend(ctx, by, org, period.At(period.Month, zone, d.Clock.Now()).Start, zone); err != nil {
		return nil, err
	}
	if f.caps, err = d.monthCaps(ctx, by, org); err != nil {
		return nil, err
	}
	if f.projects, err = d.Tenants.Projects(ctx, by, org); err != nil {
		return nil, err
	}
	members, err := d.Tenants.Members(ctx, by, org)
	for _, m := range members {
		f.people[m.User] = m.Email
	}
	for _, m := range d.Catalogue.Models() {
		f.models[m.ID] = m.Name
	}
	return f, err
}

func (f *facts) projectList() []console.Project {
	out := make([]console.Project, 0, len(f.projects))
	for _, p := range f.projects {
		if p.ArchivedAt == nil {
			out = append(out, console.Project{ID: p.ID, Name: p.Name, Cap: amountOf(f.caps, p.ID), Used: f.spend.Projects[p.ID]})
		}
	}
	return out
}

func (f *facts) projectName(id ids.ID) string {
	for _, p := range f.projects {
		if p.ID == id {
			return p.Name
		}
	}
	return ""
}

func (f *facts) keyOf(k keys.Key) console.Key {
	return console.Key{ID: k.ID, Name: k.Name, Prefix: k.Prefix, Last4: k.Last4, Project: f.projectName(k.Project), ProjectID: k.Project,
		Created: k.CreatedAt, CreatedBy: f.people[k.CreatedBy], LastUsed: orZero(k.LastUsedAt), LastModel: f.models[f.spend.Keys[k.ID].LastModel],
		Used: f.spend.Keys[k.ID].Charged, Cap: amountOf(f.caps, k.ID), Expires: orZero(k.ExpiresAt), Revoked: orZero(k.RevokedAt)}
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// keyList reads all pages of an organization's keys, newest first.
func (d *Deps) keyList(ctx context.Context, by tenants.Actor, org ids.ID) (all []keys.Key, err error) {
	for last := ids.Nil; len(all) < maxKeys; last = all[len(all)-1].ID {
		page, err := d.Keys.Keys(ctx, by, org, ids.Nil, last, tenants.MaxPage)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < tenants.MaxPage {
			break
		}
	}
	return all, nil
}

// Keys are the organization's, newest first.
func (c customer) Keys(ctx context.Context, who session.Viewer) ([]console.Key, error) {
	list, err := c.keyList(ctx, member(who), who.Org)
	if err != nil {
		return nil, err
	}
	f, err := c.facts(ctx, who)
	if err != nil {
		return nil, err
	}
	out := make([]console.Key, len(list))
	for i, k := range list {
		out[i] = f.keyOf(k)
	}
	return out, nil
}

// Key is one key; the playground's keys are one that cannot be used elsewhere.
func (c customer) Key(ctx context.Context, who session.Viewer, id ids.ID) (console.Key, error) {
	if id == report.Playground {
		return console.Key{ID: id, Name: "Playground", Expires: c.Clock.Now()}, nil
	}
	k, err := c.Deps.Keys.Key(ctx, member(who), who.Org, id)
	if err != nil {
		return console.Key{}, err
	}
	f, err := c.facts(ctx, who)
	if err != nil {
		return console.Key{}, err
	}
	return f.keyOf(k), nil
}

// Projects are those that keys can be made in.
func (c customer) Projects(ctx context.Context, who session.Viewer) ([]console.Project, error) {
	f, err := c.facts(ctx, who)
	if err != nil {
		return nil, err
	}
	return f.projectList(), nil
}

// keyFields are the form's names for what tenants/keys and billing/credit complain about.
var keyFields = map[string]string{"project_id": "project", "expires_at": "expires", "amount": "cap"}

// CreateKey makes a key, with its cap. A key whose cap cannot be set is not given out.
func (c customer) CreateKey(ctx context.Context, who session.Viewer, k console.NewKey) (string, error) {
	by := member(who)
	if k.Cap != nil && by.Require(tenants.CapsManage, who.Org) != nil {
		return "", fault.New(fault.Invalid, "Your role (%s) cannot set caps. Leave it empty, or ask an owner or admin.", who.Role).WithParam("cap")
	}
	made, secret, err := c.Deps.Keys.Create(ctx, by, keys.NewKey{Org: who.Org, Project: k.Project, Name: k.Name, ExpiresAt: k.Expires, Form: k.ID})
	if fault.Is(err, fault.NotFound) {
		return "", fault.Wrap(err, fault.Invalid, "There is no such project. Choose another one.").(*fault.Fault).WithParam("project")
	}
	if err != nil || k.Cap == nil {
		return secret, rename(err, keyFields)
	}
	_, err = c.Credit.SetCap(ctx, by, who.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: made.ID, Period: period.Month, Amount: *k.Cap})
	if err == nil {
		return secret, nil
	}
	if _, revoked := c.Deps.Keys.Revoke(context.WithoutCancel(ctx), by, who.Org, made.ID); revoked != nil {
		return "", revoked
	}
	return "", rename(err, keyFields)
}

// RevokeKey ends a key for good.
func (c customer) RevokeKey(ctx context.Context, who session.Viewer, id ids.ID) error {
	_, err := c.Deps.Keys.Revoke(ctx, member(who), who.Org, id)
	return err
}

// PlaygroundKey mints a short-lived key in the organization's first project.
func (c customer) PlaygroundKey(ctx context.Context, who session.Viewer) (string, time.Time, error) {
	by := member(who)
	projects, err := c.Tenants.Projects(ctx, by, who.Org)
	if err != nil {
		return "", time.Time{}, err
	}
	for _, p := range projects {
		if p.ArchivedAt == nil {
			k, secret, err := c.Deps.Keys.CreatePlayground(ctx, by, who.Org, p.ID)
			return secret, orZero(k.ExpiresAt), err
		}
	}
	return "", time.Time{}, fault.New(fault.Conflict, "There is no project to charge. Ask your provider for one.")
}
