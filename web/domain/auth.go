package domain

import (
	"context"
	"time"

	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/web/session"
)

// leastAnswer is how long asking for a link takes at least: what the database does for a known address must not show.
const leastAnswer = 150 * time.Millisecond

// auth implements session.Auth.
type auth struct {
	*Deps
	asked *knocks
}

func newAuth(d *Deps) auth { return auth{d, newKnocks(d.Clock)} }

// Exchange uses up a one-time sign-in token. The cookie outlives the session's idle time, which slides on the server.
func (a auth) Exchange(ctx context.Context, token string, from session.Client) (session.Session, error) {
	cookie, s, err := a.Tenants.SignIn(ctx, token, from.IP, "")
	if err != nil {
		return session.Session{}, err
	}
	return session.Session{Secret: cookie, Expires: s.Created.Add(tenants.SessionMax), Operator: s.User.Operator}, nil
}

// Lookup finds who a cookie belongs to. Of several organizations it takes the first by name that is not suspended.
func (a auth) Lookup(ctx context.Context, secret string) (session.Viewer, error) {
	s, err := a.Tenants.Session(ctx, secret)
	if err != nil {
		return session.Viewer{}, err
	}
	v := session.Viewer{User: s.User.ID, Email: s.User.Email, Name: s.User.Name, Operator: s.User.Operator}
	all, err := a.Tenants.Memberships(ctx, tenants.Actor{User: s.User.ID}, s.User.ID)
	if err != nil {
		return session.Viewer{}, err
	}
	var in tenants.Membership
	for i, m := range all {
		if i == 0 || in.Suspended && !m.Suspended {
			in = m
		}
	}
	if in.Org == ids.Nil {
		return v, nil
	}
	zone, err := period.Zone(in.TimeZone)
	if err != nil {
		return session.Viewer{}, err
	}
	v.Org, v.OrgName, v.Role, v.Zone, v.May = in.Org, in.Name, string(in.Role), zone, may(in.Role)
	v.Alert, err = a.alert(ctx, v)
	return v, err
}

func may(r tenants.Role) (p session.Perm) {
	if r.May(tenants.KeysManage) {
		p |= session.PermKeys
	}
	if r.May(tenants.CapsManage) {
		p |= session.PermCaps
	}
	if r.May(tenants.BillingManage) {
		p |= session.PermBilling
	}
	return p
}

// SignOut ends the session.
func (a auth) SignOut(ctx context.Context, secret string) error {
	s, err := a.Tenants.Session(ctx, secret)
	if fault.Is(err, fault.Unauthenticated) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.Tenants.EndSession(ctx, tenants.Actor{User: s.User.ID}, s.ID)
}

// RequestLink mails a link to a known address. A client that asks for too many is refused; an address that is asked for
// too often gets no more mail, and nobody is told.
func (a auth) RequestLink(ctx context.Context, email string, from session.Client) error {
	if err := a.asked.knock(from.IP); err != nil {
		return err
	}
	enough := time.NewTimer(leastAnswer)
	defer enough.Stop()
	if err := a.Tenants.RequestLink(ctx, email); err != nil {
		return err
	}
	select {
	case <-enough.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
