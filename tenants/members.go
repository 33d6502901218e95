package tenants

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Member is a person in an organization.
type Member struct {
	User      ids.ID    `json:"user_id"`
	Email     string    `json:"email"`
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Disabled  bool      `json:"disabled"` // may not sign in
	CreatedAt time.Time `json:"created_at"`
}

// Membership is an organization seen from one of its members.
type Membership struct {
	Org       ids.ID
	Name      string
	TimeZone  string // IANA name
	Role      Role
	Suspended bool
}

// AddMember lets the person of this address into the organization, and tells them by mail where to sign in. Giving the
// owner role takes OwnersManage.
func (s *Service) AddMember(ctx context.Context, by Actor, org ids.ID, email string, role Role) (m Member, err error) {
	if err := requireRole(by, org, role); err != nil {
		return Member{}, err
	}
	if email, err = Email("email", email); err != nil {
		return Member{}, err
	}
	err = s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		row, err := rows.GetOrg(ctx, org)
		if err != nil {
			return Found(err, "organization")
		}
		m, err = s.insertMember(ctx, tx, rows, by, orgOf(row), email, role)
		return err
	})
	return m, err
}

func (s *Service) insertMember(ctx context.Context, tx pgx.Tx, rows *q.Queries, by Actor, org Org, email string, role Role) (Member, error) {
	u, err := s.ensureUser(ctx, rows, email)
	if err != nil {
		return Member{}, err
	}
	m := Member{User: u.ID, Email: u.Email, Name: u.Name, Role: role, Disabled: u.DisabledAt != nil, CreatedAt: s.now()}
	err = rows.InsertMember(ctx, q.InsertMemberParams{OrgID: org.ID, UserID: u.ID, Role: string(role), CreatedAt: m.CreatedAt})
	if err != nil {
		return Member{}, Taken(err, "%s is a member already.", email)
	}
	if err := s.mail(ctx, rows, email, "You are now a member of "+org.Name, fmt.Sprintf(
		"You can now sign in with this address and see %s there:\n\n%s\n", org.Name, s.linkURL(""))); err != nil {
		return Member{}, err
	}
	return m, s.audit(ctx, tx, by, org.ID, "member.add", ids.Format(ids.User, u.ID), nil, m)
}

// Members lists the people of an organization, the oldest first.
func (s *Service) Members(ctx context.Context, by Actor, org ids.ID) (members []Member, err error) {
	if err := by.Require(MembersRead, org); err != nil {
		return nil, err
	}
	err = s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		if _, err := rows.GetOrg(ctx, org); err != nil {
			return Found(err, "organization")
		}
		found, err := rows.ListMembers(ctx, org)
		members = each(found, func(r q.ListMembersRow) Member {
			return Member{User: r.UserID, Email: r.Email, Name: r.Name, Role: Role(r.Role), Disabled: r.DisabledAt != nil, CreatedAt: r.CreatedAt}
		})
		return err
	})
	return members, err
}

// SetRole changes a member's role. Giving or taking the owner role takes OwnersManage; the last owner stays one.
func (s *Service) SetRole(ctx context.Context, by Actor, org, user ids.ID, role Role) error {
	if err := requireRole(by, org, role); err != nil {
		return err
	}
	return s.changeMember(ctx, by, org, user, func(tx pgx.Tx, rows *q.Queries, old Role) error {
		if old == role {
			return nil
		}
		if err := rows.SetMemberRole(ctx, q.SetMemberRoleParams{OrgID: org, UserID: user, Role: string(role)}); err != nil {
			return err
		}
		return s.audit(ctx, tx, by, org, "member.set_role", ids.Format(ids.User, user), old, role)
	})
}

// RemoveMember takes a person out of the organization. Keys they made stay: they belong to the project. Everybody may
// leave by themselves, the last owner excepted.
func (s *Service) RemoveMember(ctx context.Context, by Actor, org, user ids.ID) error {
	leaving := by.User == user && by.Org == org && user != ids.Nil
	if !leaving {
		if err := by.Require(MembersManage, org); err != nil {
			return err
		}
	}
	return s.changeMember(ctx, by, org, user, func(tx pgx.Tx, rows *q.Queries, old Role) error {
		if err := rows.DeleteMember(ctx, q.DeleteMemberParams{OrgID: org, UserID: user}); err != nil {
			return err
		}
		return s.audit(ctx, tx, by, org, "member.remove", ids.Format(ids.User, user), old, nil)
	})
}

// changeMember runs change on a member while the owners are locked, and refuses to leave none. What the member's playground
// was given under the old role ends.
func (s *Service) changeMember(ctx context.Context, by Actor, org, user ids.ID, change func(pgx.Tx, *q.Queries, Role) error) error {
	var ended [][]byte
	err := s.system(ctx, func(tx pgx.Tx, rows *q.Queries) error {
		owners, err := rows.LockOwners(ctx, org)
		if err != nil {
			return err
		}
		m, err := rows.GetMember(ctx, q.GetMemberParams{OrgID: org, UserID: user})
		if err != nil {
			return Found(err, "member")
		}
		if Role(m.Role) == Owner && by.User != user {
			if err := by.Require(OwnersManage, org); err != nil {
				return err
			}
		}
		if err := change(tx, rows, Role(m.Role)); err != nil {
			return err
		}
		if ended, err = s.endPlayground(ctx, rows, user, org); err != nil || !slices.Contains(owners, user) {
			return err
		}
		if left, err := rows.LockOwners(ctx, org); err != nil || len(left) > 0 {
			return err
		}
		return fault.New(fault.Conflict, "An organization keeps at least one owner. Make somebody else an owner first.").WithCode("last_owner")
	})
	if err == nil {
		s.noticeKeys(ctx, ended)
	}
	return err
}

// Memberships lists the organizations of a user: their own, or anybody's for an operator.
func (s *Service) Memberships(ctx context.Context, by Actor, user ids.ID) (all []Membership, err error) {
	if by.User != user || user == ids.Nil {
		if err := by.RequireOperator(); err != nil {
			return nil, err
		}
	}
	err = s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		found, err := rows.ListMemberships(ctx, user)
		all = each(found, func(r q.ListMembershipsRow) Membership {
			return Membership{Org: r.OrgID, Name: r.OrgName, TimeZone: r.TimeZone, Role: Role(r.Role), Suspended: r.SuspendedAt != nil}
		})
		return err
	})
	return all, err
}

// ActorIn gives the user as an actor in an organization: with the member's role, or as an operator.
// Errors: fault.NotFound when the user has no business there.
func (s *Service) ActorIn(ctx context.Context, u User, org ids.ID) (Actor, error) {
	a := Actor{User: u.ID, Operator: u.Operator, Org: org}
	err := s.system(ctx, func(_ pgx.Tx, rows *q.Queries) error {
		m, err := rows.GetMember(ctx, q.GetMemberParams{OrgID: org, UserID: u.ID})
		if err == nil {
			a.Role = Role(m.Role)
		}
		if u.Operator {
			_, err = rows.GetOrg(ctx, org)
		}
		return Found(err, "organization")
	})
	return a, err
}

func requireRole(by Actor, org ids.ID, role Role) error {
	if err := by.Require(MembersManage, org); err != nil {
		return err
	}
	if !role.Known() {
		return fault.New(fault.Invalid, "The role is one of %v.", Roles).WithParam("role")
	}
	if role == Owner {
		return by.Require(OwnersManage, org)
	}
	return nil
}
