package control

import (
	"strings"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Project is a team or application inside an organization.
type Project struct {
	ID         string     `json:"id"`
	OrgID      string     `json:"org_id"`
	Name       string     `json:"name"`
	CreatedAt  time.Time  `json:"created_at"`
	ArchivedAt *time.Time `json:"archived_at,omitempty"`
}

func projectOf(p tenants.Project) Project {
	return Project{ID: ids.Format(ids.Project, p.ID), OrgID: ids.Format(ids.Org, p.Org), Name: p.Name, CreatedAt: p.CreatedAt, ArchivedAt: p.ArchivedAt}
}

// ProjectName names a project.
type ProjectName struct {
	Name string `json:"name"`
}

func (a *api) listProjects(c *call, _ none) (Page[Project], error) {
	org, err := c.org()
	if err != nil {
		return Page[Project]{}, err
	}
	projects, err := a.Tenants.Projects(c, c.actor, org)
	return all(projects, projectOf), err
}

func (a *api) createProject(c *call, in ProjectName) (Project, error) {
	org, err := c.org()
	if err != nil {
		return Project{}, err
	}
	p, err := a.Tenants.CreateProject(c, c.actor, org, in.Name)
	return projectOf(p), err
}

func (a *api) renameProject(c *call, in ProjectName) (Project, error) {
	org, id, err := c.inOrg("project", ids.Project)
	if err != nil {
		return Project{}, err
	}
	p, err := a.Tenants.RenameProject(c, c.actor, org, id, in.Name)
	return projectOf(p), err
}

func (a *api) archiveProject(c *call) (Project, error) {
	org, id, err := c.inOrg("project", ids.Project)
	if err != nil {
		return Project{}, err
	}
	p, err := a.Tenants.ArchiveProject(c, c.actor, org, id)
	return projectOf(p), err
}

// inOrg reads the organization and one thing in it from the path.
func (c *call) inOrg(name, prefix string) (org, id ids.ID, err error) {
	if org, err = c.org(); err != nil {
		return ids.Nil, ids.Nil, err
	}
	id, err = c.id(name, prefix)
	return org, id, err
}

// Member is a person in an organization.
type Member struct {
	UserID    string    `json:"user_id"`
	Email     string    `json:"email"`
	Name      string    `json:"name"`
	Role      string    `json:"role"`
	Disabled  bool      `json:"disabled"`
	CreatedAt time.Time `json:"created_at"`
}

func memberOf(m tenants.Member) Member {
	return Member{UserID: ids.Format(ids.User, m.User), Email: m.Email, Name: m.Name, Role: string(m.Role), Disabled: m.Disabled, CreatedAt: m.CreatedAt}
}

func (a *api) listMembers(c *call, _ none) (Page[Member], error) {
	org, err := c.org()
	if err != nil {
		return Page[Member]{}, err
	}
	members, err := a.Tenants.Members(c, c.actor, org)
	return all(members, memberOf), err
}

// NewMember lets a person into an organization.
type NewMember struct {
	Email string `json:"email"`
	Role  string `json:"role"`
}

func (a *api) addMember(c *call, in NewMember) (Member, error) {
	org, err := c.org()
	if err != nil {
		return Member{}, err
	}
	m, err := a.Tenants.AddMember(c, c.actor, org, in.Email, tenants.Role(in.Role))
	return memberOf(m), err
}

// MemberRole is a member's role.
type MemberRole struct {
	Role string `json:"role"`
}

func (a *api) setRole(c *call, in MemberRole) (none, error) {
	org, user, err := c.inOrg("user", ids.User)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Tenants.SetRole(c, c.actor, org, user, tenants.Role(in.Role))
}

func (a *api) removeMember(c *call) (none, error) {
	org, user, err := c.inOrg("user", ids.User)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Tenants.RemoveMember(c, c.actor, org, user)
}

// NewSignInLink asks for a link.
type NewSignInLink struct {
	Email        string `json:"email"`
	ValidSeconds int64  `json:"valid_seconds,omitempty"`
}

// SignInLink signs its user in once.
type SignInLink struct {
	URL       string    `json:"url"`
	Email     string    `json:"email"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (a *api) createSignInLink(c *call, in NewSignInLink) (SignInLink, error) {
	ttl := tenants.LinkTTL
	if in.ValidSeconds != 0 {
		if in.ValidSeconds < 0 || in.ValidSeconds > int64(tenants.MaxLinkTTL/time.Second) {
			return SignInLink{}, fault.New(fault.Invalid, "A sign-in link is valid for at most %d seconds.", int64(tenants.MaxLinkTTL/time.Second)).WithParam("valid_seconds")
		}
		ttl = time.Duration(in.ValidSeconds) * time.Second
	}
	link, err := a.Tenants.CreateLink(c, c.actor, in.Email, ttl)
	return SignInLink{URL: link.URL, Email: link.Email, ExpiresAt: link.Expires}, err
}

// ControlToken is a bearer of this API.
type ControlToken struct {
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by,omitempty"` // the person behind it; absent: not known
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// TokenName names a control token.
type TokenName struct {
	Name string `json:"name"`
}

// NewControlToken is a control token with its secret, which is shown here only.
type NewControlToken struct {
	Name   string `json:"name"`
	Bearer string `json:"bearer"`
}

func (a *api) listControlTokens(c *call, _ none) (Page[ControlToken], error) {
	tokens, err := a.Tenants.ControlTokens(c, c.actor)
	return all(tokens, func(t tenants.ControlToken) ControlToken { return ControlToken(t) }), err
}

func (a *api) createControlToken(c *call, in TokenName) (NewControlToken, error) {
	bearer, err := a.Tenants.CreateControlToken(c, c.actor, in.Name)
	return NewControlToken{Name: strings.TrimSpace(in.Name), Bearer: bearer}, err
}

func (a *api) revokeControlToken(c *call) (none, error) {
	return none{}, a.Tenants.RevokeControlToken(c, c.actor, c.param("name"))
}
