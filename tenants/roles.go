package tenants

// Role is what a member may do in one organization.
type Role string

// The roles.
const (
	Owner     Role = "owner"     // everything, other owners included
	Admin     Role = "admin"     // everything but owners
	Billing   Role = "billing"   // money: credit, invoices, caps
	Developer Role = "developer" // keys and requests
	Viewer    Role = "viewer"    // looks
)

// Roles lists them, the mightiest first.
var Roles = []Role{Owner, Admin, Billing, Developer, Viewer}

// Permission is one thing that a domain function asks an Actor for.
type Permission uint

// The permissions inside an organization.
const (
	OrgRead Permission = iota
	OrgManage
	MembersRead
	MembersManage
	OwnersManage // give and take the owner role
	ProjectsManage
	KeysRead
	KeysManage
	UsageRead
	RequestsMake // spend money: the playground
	BillingRead
	BillingManage
	CapsManage
	AuditRead
)

// grants is the whole policy: who is not named here may not.
var grants = map[Role][]Permission{
	Owner: {OrgRead, OrgManage, MembersRead, MembersManage, OwnersManage, ProjectsManage, KeysRead, KeysManage, UsageRead,
		RequestsMake, BillingRead, BillingManage, CapsManage, AuditRead},
	Admin: {OrgRead, OrgManage, MembersRead, MembersManage, ProjectsManage, KeysRead, KeysManage, UsageRead,
		RequestsMake, BillingRead, BillingManage, CapsManage, AuditRead},
	Billing:   {OrgRead, MembersRead, KeysRead, UsageRead, BillingRead, BillingManage, CapsManage},
	Developer: {OrgRead, MembersRead, KeysRead, KeysManage, UsageRead, RequestsMake},
	Viewer:    {OrgRead, MembersRead, KeysRead, UsageRead},
}

// Known reports whether r is one of the roles.
func (r Role) Known() bool { _, ok := grants[r]; return ok }

// May reports whether the role has the permission.
func (r Role) May(p Permission) bool {
	for _, have := range grants[r] {
		if have == p {
			return true
		}
	}
	return false
}
