package webtest

import (
	"context"
	"time"

	"millrace/internal/fault"
	"millrace/web/session"
)

// Cookies of the people in the fixture, and a sign-in token that works once.
const (
	Member   = "member"   // an owner of Acme Robotics
	Reader   = "reader"   // a viewer of Acme Robotics: may look only
	Operator = "operator" // runs the business, belongs to no organization
	Both     = "both"     // an operator who is a member too
	Token    = "one-time-token"
)

// Berlin is the zone of the fixture's organization.
var Berlin = mustZone("Europe/Berlin")

func mustZone(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return z
}

// Exchange opens a member's session for Token, once.
func (f *Fixture) Exchange(_ context.Context, token string, _ session.Client) (session.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token != Token || f.used[token] {
		return session.Session{}, fault.New(fault.Unauthenticated, "This link no longer works.")
	}
	f.used[token] = true
	return session.Session{Secret: Member, Expires: Now.AddDate(10, 0, 0)}, nil
}

// Lookup knows the cookies of this file.
func (f *Fixture) Lookup(_ context.Context, secret string) (session.Viewer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := session.Viewer{User: id(kindUser, 1), Email: "dana@acme.example", Name: "Dana Ito", Org: id(kindOrg, 1), OrgName: "Acme Robotics", Role: "owner", Zone: Berlin, May: session.PermKeys | session.PermCaps | session.PermBilling}
	switch {
	case f.out[secret]:
		return session.Viewer{}, fault.New(fault.Unauthenticated, "Signed out.")
	case secret == Member:
		return v, nil
	case secret == Reader:
		v.Email, v.Name, v.Role, v.May = "kim@acme.example", "Kim", "viewer", 0
		return v, nil
	case secret == Both:
		v.Operator = true
		return v, nil
	case secret == Operator:
		return session.Viewer{User: id(kindUser, 9), Email: "ops@millrace.example", Operator: true}, nil
	}
	return session.Viewer{}, fault.New(fault.Unauthenticated, "No session.")
}

// SignOut ends a session.
func (f *Fixture) SignOut(_ context.Context, secret string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out[secret] = true
	return nil
}

// RequestLink accepts every address.
func (f *Fixture) RequestLink(context.Context, string, session.Client) error { return nil }
