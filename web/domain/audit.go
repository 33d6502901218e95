package domain

import (
	"context"
	"strings"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants/audit"
	"millrace/web/admin"
	"millrace/web/console"
	"millrace/web/session"
	"millrace/web/ui"
)

// entriesPerPage is one page of an audit log.
const entriesPerPage = 50

const auditPrefix = "aud" // of cursors

// Audit is a page of the organization's log.
func (c customer) Audit(ctx context.Context, who session.Viewer, after string) (console.AuditList, error) {
	list, err := c.Tenants.Audit(ctx, member(who), who.Org, cursor(auditPrefix, after), entriesPerPage+1)
	if err != nil {
		return console.AuditList{}, err
	}
	list, next := auditPage(list)
	entries, err := c.entries(ctx, list, func(audit.Entry) string { return who.OrgName })
	return console.AuditList{Entries: entries, Next: next}, err
}

// Audit is a page of everybody's log.
func (b business) Audit(ctx context.Context, after string) (admin.AuditList, error) {
	if err := operator(ctx).RequireOperator(); err != nil {
		return admin.AuditList{}, err
	}
	var rows []q.PageAuditRow
	err := b.asSystem(ctx, func(r *q.Queries) (err error) {
		rows, err = r.PageAudit(ctx, q.PageAuditParams{BeforeID: before(cursor(auditPrefix, after)), MaxRows: entriesPerPage + 1})
		return err
	})
	if err != nil {
		return admin.AuditList{}, err
	}
	list := make([]audit.Entry, len(rows))
	orgs := map[ids.ID]string{}
	for i, r := range rows {
		list[i] = audit.Entry{Org: r.OrgID, ID: r.ID, At: r.At, Action: r.Action, Target: r.Target, Before: r.Before, After: r.After,
			By: audit.Identity{Actor: r.Actor, ActingAs: text(r.ActingAs), RequestID: text(r.RequestID), IP: text(r.Ip)}}
		orgs[r.OrgID] = r.OrgName
	}
	list, next := auditPage(list)
	entries, err := b.entries(ctx, list, func(e audit.Entry) string { return orgs[e.Org] })
	return admin.AuditList{Entries: entries, Next: next}, err
}

func auditPage(list []audit.Entry) (page []audit.Entry, next string) {
	if len(list) <= entriesPerPage {
		return list, ""
	}
	page = list[:entriesPerPage]
	return page, ids.Format(auditPrefix, page[len(page)-1].ID)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// entries makes a log readable. The caller has checked who asks: names are looked up whoever they belong to.
func (d *Deps) entries(ctx context.Context, list []audit.Entry, orgName func(audit.Entry) string) ([]ui.AuditEntry, error) {
	var mentioned []string
	for _, e := range list {
		mentioned = append(mentioned, e.By.Actor, e.By.ActingAs, e.Target, scopeIn(e))
	}
	names, err := d.names(ctx, mentioned)
	out := make([]ui.AuditEntry, len(list))
	for i, e := range list {
		target := e.Target
		if s := scopeIn(e); s != "" {
			target = s // a cap reads as what it is set on
		}
		out[i] = ui.AuditEntry{At: e.At, Actor: names.of(e.By.Actor), ActingAs: names.of(e.By.ActingAs), Org: orgName(e), Action: e.Action,
			Target: names.thing(target), Change: changeText(e), IP: e.By.IP, RequestID: e.By.RequestID}
	}
	return out, err
}

// names maps ids, as rows keep them, to what they are called.
type names map[string]string

// names looks up what people and things are called. Words that are no ids are left alone.
func (d *Deps) names(ctx context.Context, words []string) (names, error) {
	byID := map[ids.ID][]string{}
	var list []ids.ID
	for _, w := range words {
		prefix, _, ok := strings.Cut(w, "_")
		id, err := ids.Parse(prefix, w)
		if !ok || err != nil {
			continue
		}
		if byID[id] == nil {
			list = append(list, id)
		}
		byID[id] = append(byID[id], w)
	}
	out := names{}
	if len(list) == 0 {
		return out, nil
	}
	err := d.asSystem(ctx, func(r *q.Queries) error {
		rows, err := r.PageNames(ctx, list)
		for _, row := range rows {
			name, _, _ := strings.Cut(row.Name, "~") // what is gone keeps its name before its id
			for _, w := range byID[row.ID] {
				out[w] = name
			}
		}
		return err
	})
	return out, err
}

// of is how an actor reads.
func (n names) of(actor string) string {
	if name, ok := n[actor]; ok {
		return name
	}
	if token, ok := strings.CutPrefix(actor, "token:"); ok {
		return "control token " + token
	}
	if actor == "system" {
		return "Millrace"
	}
	return actor
}

// kinds says what a thing is, by its id's prefix. People and organizations are known by name alone.
var kinds = map[string]string{ids.Project: "project ", ids.Key: "key ", ids.Model: "model ", ids.Price: "price of ", ids.Unit: "unit ", ids.Host: "host "}

// thing is how a target reads.
func (n names) thing(target string) string {
	name, ok := n[target]
	if !ok {
		if strings.HasPrefix(target, ids.Grant+"_") {
			return "credit"
		}
		if strings.HasPrefix(target, ids.Aside+"_") {
			return "an event in quarantine"
		}
		return target
	}
	prefix, _, _ := strings.Cut(target, "_")
	return kinds[prefix] + name
}
