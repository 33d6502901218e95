package tenants

import (
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants/audit"
)

// Actor is who asks for something. Every domain function that changes or shows a customer's matters takes one and checks
// it by itself, so that no handler can forget to. The zero Actor may do nothing.
type Actor struct {
	User      ids.ID // ids.Nil for programs
	Operator  bool   // staff of the business that runs Millrace, or one of its control tokens: may act on every organization
	Org       ids.ID // the organization Role holds in
	Role      Role
	Token     string // name of the control token
	ActingAs  string // whose view an operator took; for the audit log
	IP        string
	RequestID string

	system bool
}

// System is Millrace itself: start-up and jobs. It may do everything, and the audit log says so.
func System() Actor { return Actor{Operator: true, system: true} }

// Require gives nil when the actor may do p in org. Another organization's matters do not exist for a member.
func (a Actor) Require(p Permission, org ids.ID) error {
	switch {
	case a.Operator:
		return nil
	case org == ids.Nil || a.Org != org:
		return notFound("organization")
	case !a.Role.May(p):
		return fault.New(fault.Forbidden, "Your role (%s) may not do this. Ask an owner or admin of the organization.", a.Role).WithCode("role_not_allowed")
	}
	return nil
}

// RequireOperator gives nil for operators only.
func (a Actor) RequireOperator() error {
	if a.Operator {
		return nil
	}
	return fault.New(fault.Forbidden, "Only an operator may do this.").WithCode("operators_only")
}

// Name is the actor as rows keep it: user_…, token:name or system; "" for the zero Actor.
func (a Actor) Name() string {
	switch {
	case a.User != ids.Nil:
		return ids.Format(ids.User, a.User)
	case a.Token != "":
		return "token:" + a.Token
	case a.system:
		return "system"
	}
	return ""
}

// AuditIdentity makes the actor an audit.Author.
func (a Actor) AuditIdentity() audit.Identity {
	return audit.Identity{Actor: a.Name(), ActingAs: a.ActingAs, RequestID: a.RequestID, IP: a.IP}
}

func notFound(what string) error {
	return fault.New(fault.NotFound, "There is no such %s.", what).WithCode("not_found")
}
