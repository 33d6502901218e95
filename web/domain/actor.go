package domain

import (
	"context"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/web/session"
)

// member is the viewer inside his organization. An operator who is a member too has the member's role there: what staff
// does to a customer goes through the operator's pages.
func member(v session.Viewer) tenants.Actor {
	return tenants.Actor{User: v.User, Org: v.Org, Role: tenants.Role(v.Role), IP: v.Client.IP}
}

// staff is the viewer on the operator's pages.
func staff(v session.Viewer) tenants.Actor {
	return tenants.Actor{User: v.User, Operator: v.Operator, IP: v.Client.IP}
}

// operator is who asks for an operator's page.
func operator(ctx context.Context) tenants.Actor {
	v, _ := session.Of(ctx) // the zero Viewer may do nothing
	return staff(v)
}

// rename makes a domain's complaint name the form's field. what maps the domain's names to the form's.
func rename(err error, what map[string]string) error {
	if err == nil {
		return nil
	}
	f := *fault.Of(err)
	if field, ok := what[f.Param]; ok {
		f.Param = field
		return &f
	}
	return err
}

// onField puts a complaint about input on a form's only field, whatever part of it is meant: the text says which.
func onField(err error, field string) error {
	if err == nil {
		return nil
	}
	f := *fault.Of(err)
	if f.Kind == fault.Invalid {
		f.Param = field
	}
	return &f
}

// cursor reads an id that a page's link carries. What is no id starts the list anew.
func cursor(prefix, text string) ids.ID {
	id, err := ids.Parse(prefix, text)
	if err != nil {
		return ids.Nil
	}
	return id
}

// before is the cursor as a bound: ids.Nil is the newest.
func before(id ids.ID) ids.ID {
	if id == ids.Nil {
		return newest
	}
	return id
}
