package tenants_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

var update = flag.Bool("update", false, "write testdata anew; review the difference")

// Every function × every kind of actor, compared with a table that is reviewed by eye. "ok" or the kind of the refusal.
func TestAccessMatrix(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	org, foreign := f.org("Acme"), f.org("Bolt")
	actors := []struct {
		name string
		tenants.Actor
	}{{"operator", f.root}, {"system", tenants.System()}}
	for _, r := range tenants.Roles {
		actors = append(actors, struct {
			name string
			tenants.Actor
		}{string(r), f.member(org.ID, string(r)+"@example.com", r)})
	}
	actors = append(actors, struct {
		name string
		tenants.Actor
	}{"foreign", f.member(foreign.ID, "owner@bolt.example", tenants.Owner)}, struct {
		name string
		tenants.Actor
	}{"nobody", tenants.Actor{}})

	n := 0
	fresh := func() string { n++; return fmt.Sprintf("fresh%d@example.com", n) }
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	viewer := func() ids.ID {
		m, err := f.AddMember(ctx, f.root, org.ID, fresh(), tenants.Viewer)
		must(err)
		return m.User
	}
	project := func() ids.ID {
		p, err := f.CreateProject(ctx, f.root, org.ID, fresh())
		must(err)
		return p.ID
	}
	user := func() string { e := fresh(); _, err := f.EnsureOperator(ctx, f.root, e); must(err); return e }
	zone, policy := "UTC", tenants.PayDelivered

	ops := []struct {
		name string
		call func(a tenants.Actor) error
	}{
		{"CreateOrg", func(a tenants.Actor) error { _, err := f.CreateOrg(ctx, a, tenants.NewOrg{Name: "X"}); return err }},
		{"Org", func(a tenants.Actor) error { _, err := f.Org(ctx, a, org.ID); return err }},
		{"Orgs", func(a tenants.Actor) error { _, err := f.Orgs(ctx, a, "", ids.Nil, 1); return err }},
		{"UpdateOrg time zone", func(a tenants.Actor) error {
			_, err := f.UpdateOrg(ctx, a, org.ID, tenants.OrgChange{TimeZone: &zone})
			return err
		}},
		{"UpdateOrg failure policy", func(a tenants.Actor) error {
			_, err := f.UpdateOrg(ctx, a, org.ID, tenants.OrgChange{FailurePolicy: &policy})
			return err
		}},
		{"SuspendOrg", func(a tenants.Actor) error { _, err := f.SuspendOrg(ctx, a, org.ID); return err }},
		{"RestoreOrg", func(a tenants.Actor) error { _, err := f.RestoreOrg(ctx, a, org.ID); return err }},
		{"CreateProject", func(a tenants.Actor) error { _, err := f.CreateProject(ctx, a, org.ID, fresh()); return err }},
		{"Projects", func(a tenants.Actor) error { _, err := f.Projects(ctx, a, org.ID); return err }},
		{"RenameProject", func(a tenants.Actor) error {
			_, err := f.RenameProject(ctx, a, org.ID, project(), fresh())
			return err
		}},
		{"ArchiveProject", func(a tenants.Actor) error { _, err := f.ArchiveProject(ctx, a, org.ID, project()); return err }},
		{"Members", func(a tenants.Actor) error { _, err := f.Members(ctx, a, org.ID); return err }},
		{"AddMember viewer", func(a tenants.Actor) error {
			_, err := f.AddMember(ctx, a, org.ID, fresh(), tenants.Viewer)
			return err
		}},
		{"AddMember owner", func(a tenants.Actor) error {
			_, err := f.AddMember(ctx, a, org.ID, fresh(), tenants.Owner)
			return err
		}},
		{"SetRole", func(a tenants.Actor) error { return f.SetRole(ctx, a, org.ID, viewer(), tenants.Billing) }},
		{"RemoveMember", func(a tenants.Actor) error { return f.RemoveMember(ctx, a, org.ID, viewer()) }},
		{"Audit", func(a tenants.Actor) error { _, err := f.Audit(ctx, a, org.ID, ids.Nil, 1); return err }},
		{"Audit of operators", func(a tenants.Actor) error { _, err := f.Audit(ctx, a, ids.Nil, ids.Nil, 1); return err }},
		{"EnsureOperator", func(a tenants.Actor) error { _, err := f.EnsureOperator(ctx, a, fresh()); return err }},
		{"CreateLink", func(a tenants.Actor) error { _, err := f.CreateLink(ctx, a, user(), tenants.LinkTTL); return err }},
		{"CreateControlToken", func(a tenants.Actor) error { _, err := f.CreateControlToken(ctx, a, fresh()); return err }},
		{"RevokeControlToken", func(a tenants.Actor) error {
			name := fresh()
			_, err := f.CreateControlToken(ctx, f.root, name)
			must(err)
			return f.RevokeControlToken(ctx, a, name)
		}},
		{"ControlTokens", func(a tenants.Actor) error { _, err := f.ControlTokens(ctx, a); return err }},
		{"Outbox", func(a tenants.Actor) error { _, err := f.Outbox(ctx, a, ids.Nil, 1); return err }},
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-26s", "")
	for _, a := range actors {
		fmt.Fprintf(&table, "%-11s", a.name)
	}
	for _, op := range ops {
		fmt.Fprintf(&table, "\n%-26s", op.name)
		for _, a := range actors {
			fmt.Fprintf(&table, "%-11s", outcome(op.call(a.Actor)))
		}
	}
	golden(t, "testdata/access.txt", trimLines(table.String()))
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.Of(err).Kind.String()
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (run with -update and review):\n%s", path, got)
	}
}
