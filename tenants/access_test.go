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

// door is one function, called by somebody.
type door struct {
	name string
	call func(a tenants.Actor) error
}

// house has an organization and makes what its doors need to work on, anew for every call.
type house struct {
	*fixture
	org ids.ID
	n   int
}

func (d *house) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *house) fresh() string { d.n++; return fmt.Sprintf("fresh%d@example.com", d.n) }

func (d *house) viewer() ids.ID {
	m, err := d.AddMember(d.t.Context(), d.root, d.org, d.fresh(), tenants.Viewer)
	d.must(err)
	return m.User
}

func (d *house) project() ids.ID {
	p, err := d.CreateProject(d.t.Context(), d.root, d.org, d.fresh())
	d.must(err)
	return p.ID
}

// orgDoors are about organizations and projects.
func (d *house) orgDoors() []door {
	zone, policy := "UTC", tenants.PayDelivered
	return []door{
		{"CreateOrg", func(a tenants.Actor) error {
			_, err := d.CreateOrg(d.t.Context(), a, tenants.NewOrg{Name: "X"})
			return err
		}},
		{"Org", func(a tenants.Actor) error { _, err := d.Org(d.t.Context(), a, d.org); return err }},
		{"Orgs", func(a tenants.Actor) error { _, err := d.Orgs(d.t.Context(), a, "", ids.Nil, 1); return err }},
		{"UpdateOrg time zone", func(a tenants.Actor) error {
			_, err := d.UpdateOrg(d.t.Context(), a, d.org, tenants.OrgChange{TimeZone: &zone})
			return err
		}},
		{"UpdateOrg failure policy", func(a tenants.Actor) error {
			_, err := d.UpdateOrg(d.t.Context(), a, d.org, tenants.OrgChange{FailurePolicy: &policy})
			return err
		}},
		{"SuspendOrg", func(a tenants.Actor) error { _, err := d.SuspendOrg(d.t.Context(), a, d.org); return err }},
		{"RestoreOrg", func(a tenants.Actor) error { _, err := d.RestoreOrg(d.t.Context(), a, d.org); return err }},
		{"CreateProject", func(a tenants.Actor) error { _, err := d.CreateProject(d.t.Context(), a, d.org, d.fresh()); return err }},
		{"Projects", func(a tenants.Actor) error { _, err := d.Projects(d.t.Context(), a, d.org); return err }},
		{"RenameProject", func(a tenants.Actor) error {
			_, err := d.RenameProject(d.t.Context(), a, d.org, d.project(), d.fresh())
			return err
		}},
		{"ArchiveProject", func(a tenants.Actor) error {
			_, err := d.ArchiveProject(d.t.Context(), a, d.org, d.project())
			return err
		}},
	}
}

// peopleDoors are about people, their ways in, and what is known of them.
func (d *house) peopleDoors() []door {
	return []door{
		{"Members", func(a tenants.Actor) error { _, err := d.Members(d.t.Context(), a, d.org); return err }},
		{"AddMember viewer", func(a tenants.Actor) error {
			_, err := d.AddMember(d.t.Context(), a, d.org, d.fresh(), tenants.Viewer)
			return err
		}},
		{"AddMember owner", func(a tenants.Actor) error {
			_, err := d.AddMember(d.t.Context(), a, d.org, d.fresh(), tenants.Owner)
			return err
		}},
		{"SetRole", func(a tenants.Actor) error { return d.SetRole(d.t.Context(), a, d.org, d.viewer(), tenants.Billing) }},
		{"RemoveMember", func(a tenants.Actor) error { return d.RemoveMember(d.t.Context(), a, d.org, d.viewer()) }},
		{"Audit", func(a tenants.Actor) error { _, err := d.Audit(d.t.Context(), a, d.org, ids.Nil, 1); return err }},
		{"Audit of operators", func(a tenants.Actor) error { _, err := d.Audit(d.t.Context(), a, ids.Nil, ids.Nil, 1); return err }},
		{"EnsureOperator", func(a tenants.Actor) error { _, err := d.EnsureOperator(d.t.Context(), a, d.fresh()); return err }},
		{"CreateLink", func(a tenants.Actor) error {
			email := d.fresh()
			if _, err := d.AddMember(d.t.Context(), d.root, d.org, email, tenants.Viewer); err != nil {
				d.t.Fatal(err)
			}
			_, err := d.CreateLink(d.t.Context(), a, email, tenants.LinkTTL)
			return err
		}},
		{"CreateControlToken", func(a tenants.Actor) error { _, err := d.CreateControlToken(d.t.Context(), a, d.fresh()); return err }},
		{"RevokeControlToken", func(a tenants.Actor) error {
			name := d.fresh()
			_, err := d.CreateControlToken(d.t.Context(), d.root, name)
			d.must(err)
			return d.RevokeControlToken(d.t.Context(), a, name)
		}},
		{"ControlTokens", func(a tenants.Actor) error { _, err := d.ControlTokens(d.t.Context(), a); return err }},
		{"Outbox", func(a tenants.Actor) error { _, err := d.Outbox(d.t.Context(), a, ids.Nil, 1); return err }},
	}
}

// actor is somebody with a name in the table.
type actor struct {
	name string
	tenants.Actor
}

// Every function × every kind of actor, compared with a table that is reviewed by eye. "ok" or the kind of the refusal.
func TestAccessMatrix(t *testing.T) {
	f := setup(t)
	org, foreign := f.org("Acme"), f.org("Bolt")
	actors := []actor{{"operator", f.root}, {"system", tenants.System()}}
	for _, r := range tenants.Roles {
		actors = append(actors, actor{string(r), f.member(org.ID, string(r)+"@example.com", r)})
	}
	actors = append(actors, actor{"foreign", f.member(foreign.ID, "owner@bolt.example", tenants.Owner)}, actor{"nobody", tenants.Actor{}})
	d := &house{fixture: f, org: org.ID}
	var table strings.Builder
	fmt.Fprintf(&table, "%-26s", "")
	for _, a := range actors {
		fmt.Fprintf(&table, "%-11s", a.name)
	}
	for _, op := range append(d.orgDoors(), d.peopleDoors()...) {
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
