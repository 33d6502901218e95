package webtest

import (
	"context"
	"slices"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/console"
	"millrace/web/session"
)

// Secret is the key every CreateKey shows.
const Secret = "mr_live_7Kd2vYtW0mB4nQx8LrJfHsZpc1QeT5uV"

// CreateKey adds a key.
func (f *Fixture) CreateKey(_ context.Context, who session.Viewer, k console.NewKey) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.projects, func(p console.Project) bool { return p.ID == k.Project })
	switch {
	case slices.ContainsFunc(f.keys, func(x console.Key) bool { return x.ID == k.ID }):
		return "", fault.New(fault.Conflict, "This form was sent already. The key was shown then and cannot be shown again.")
	case slices.ContainsFunc(f.keys, func(x console.Key) bool { return x.Name == k.Name }):
		return "", fault.New(fault.Conflict, "There is a key with this name already.").WithParam("name")
	case i < 0:
		return "", fault.New(fault.Invalid, "Choose a project.").WithParam("project")
	}
	f.keys = slices.Insert(f.keys, 0, console.Key{ID: k.ID, Name: k.Name, Prefix: "mr_live_7Kd", Last4: "T5uV", Project: f.projects[i].Name, ProjectID: k.Project, Created: Now, CreatedBy: who.Email, Cap: k.Cap, Expires: k.Expires})
	return Secret, nil
}

// RevokeKey ends a key.
func (f *Fixture) RevokeKey(_ context.Context, _ session.Viewer, id ids.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.keys {
		if f.keys[i].ID == id {
			f.keys[i].Revoked = Now
			return nil
		}
	}
	return errGone
}

// SetLow keeps the threshold.
func (f *Fixture) SetLow(_ context.Context, _ session.Viewer, below money.Nano) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.low.Below = below
	return nil
}

// SetCap changes a cap.
func (f *Fixture) SetCap(_ context.Context, _ session.Viewer, c console.CapChange) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch c.Scope {
	case console.ScopeOrg:
		f.cap = c.Cap
	case console.ScopeProject:
		for i := range f.projects {
			if f.projects[i].ID == c.ID {
				f.projects[i].Cap = c.Cap
			}
		}
	case console.ScopeKey:
		for i := range f.keys {
			if f.keys[i].ID == c.ID {
				f.keys[i].Cap = c.Cap
			}
		}
	}
	return nil
}

// PlaygroundKey is the secret that the fixture's own endpoint accepts.
func (f *Fixture) PlaygroundKey(context.Context, session.Viewer) (string, time.Time, error) {
	return playKey, Now.Add(5 * time.Minute), nil
}
