package domain

import (
	"context"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/web/console"
	"millrace/web/session"
)

// sessionsKept is how long a session is certainly remembered after its last use.
const sessionsKept = 30 * 24 * time.Hour

// membersOf are an organization's people with their last visits.
func (d *Deps) membersOf(ctx context.Context, by tenants.Actor, org ids.ID) ([]tenants.Member, map[ids.ID]time.Time, error) {
	list, err := d.Tenants.Members(ctx, by, org) // asks the actor
	if err != nil {
		return nil, nil, err
	}
	seen := map[ids.ID]time.Time{}
	err = d.asSystem(ctx, func(r *q.Queries) error {
		rows, err := r.PageMembersSeen(ctx, org)
		for _, x := range rows {
			seen[x.UserID] = x.SeenAt
		}
		return err
	})
	return list, seen, err
}

// Members are the organization's people.
func (c customer) Members(ctx context.Context, who session.Viewer) ([]console.Member, error) {
	list, seen, err := c.membersOf(ctx, member(who), who.Org)
	out := make([]console.Member, len(list))
	for i, m := range list {
		last, been := seen[m.User]
		out[i] = console.Member{Name: m.Name, Email: m.Email, Role: string(m.Role), Joined: m.CreatedAt, LastSeen: last,
			// Who never came is told from who has not come for long: sessions are forgotten after a while.
			Pending: !been && c.Clock.Now().Sub(m.CreatedAt) < sessionsKept}
	}
	return out, err
}
