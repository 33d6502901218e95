package tenants_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

func TestCreateOrg(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	org, err := f.CreateOrg(ctx, f.root, tenants.NewOrg{Name: " Acme ", TimeZone: "Asia/Kolkata", Owner: "Ann@Example.com"})
	if err != nil {
		t.Fatal(err)
	}
	want := tenants.Org{ID: org.ID, Name: "Acme", TimeZone: "Asia/Kolkata", FailurePolicy: "delivered", PriceBook: "standard", CreatedAt: f.clock.Now()}
	if org != want {
		t.Errorf("got %+v, want %+v", org, want)
	}
	if read, err := f.Org(ctx, f.root, org.ID); err != nil || read != want {
		t.Errorf("read %+v, %v", read, err)
	}
	projects, err := f.Projects(ctx, f.root, org.ID)
	if err != nil || len(projects) != 1 || projects[0].Name != "Default" {
		t.Errorf("projects %+v, %v", projects, err)
	}
	members, err := f.Members(ctx, f.root, org.ID)
	if err != nil || len(members) != 1 || members[0].Email != "ann@example.com" || members[0].Role != tenants.Owner {
		t.Errorf("members %+v, %v", members, err)
	}
	mails, err := f.Outbox(ctx, f.root, ids.Nil, 0)
	if err != nil || len(mails) != 1 || mails[0].Recipient != "ann@example.com" || !strings.Contains(mails[0].Body, linkBase) {
		t.Errorf("mail %+v, %v", mails, err)
	}
	if got, want := f.actions(org.ID), []string{"member.add", "project.create", "org.create"}; !slices.Equal(got, want) {
		t.Errorf("audited %v, want %v", got, want)
	}
}

func TestCreateOrgRefuses(t *testing.T) {
	f := setup(t)
	for param, in := range map[string]tenants.NewOrg{
		"name":           {Name: "  "},
		"time_zone":      {Name: "A", TimeZone: "Local"},
		"failure_policy": {Name: "A", FailurePolicy: "free"},
		"price_book":     {Name: "A", PriceBook: "Standard!"},
		"owner_email":    {Name: "A", Owner: "Ann <ann@example.com>"},
	} {
		_, err := f.CreateOrg(t.Context(), f.root, in)
		if got := fault.Of(err); got == nil || got.Kind != fault.Invalid || got.Param != param {
			t.Errorf("%s: got %v", param, err)
		}
	}
	for _, zone := range []string{"posixrules", "localtime", "Factory", "posix/Europe/Berlin", "right/Europe/Berlin"} {
		if _, err := f.CreateOrg(t.Context(), f.root, tenants.NewOrg{Name: "A", TimeZone: zone}); err == nil || fault.Of(err).Param != "time_zone" {
			t.Errorf("%s: %v", zone, err)
		}
	}
	if orgs, err := f.Orgs(t.Context(), f.root, "", ids.Nil, 0); err != nil || len(orgs) != 0 {
		t.Errorf("left %v, %v", orgs, err)
	}
}

func TestARepeatedCreateOrgMakesOne(t *testing.T) {
	f := setup(t)
	in := tenants.NewOrg{Name: "Acme", IdempotencyKey: "k1"}
	var wg sync.WaitGroup
	made := make([]tenants.Org, 8)
	for i := range made {
		wg.Go(func() {
			var err error
			if made[i], err = f.CreateOrg(t.Context(), f.root, in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, org := range made {
		if org != made[0] {
			t.Errorf("got %v and %v", org, made[0])
		}
	}
	if orgs, err := f.Orgs(t.Context(), f.root, "", ids.Nil, 0); err != nil || len(orgs) != 1 {
		t.Errorf("%d organizations, %v", len(orgs), err)
	}
	in.Name = "Another"
	_, err := f.CreateOrg(t.Context(), f.root, in)
	wantKind(t, err, fault.Conflict)
	// Keys are the actor's own.
	if _, err := f.CreateOrg(t.Context(), tenants.Actor{Operator: true, Token: "other"}, in); err != nil {
		t.Error(err)
	}
}

func TestListOrgsByPages(t *testing.T) {
	f := setup(t)
	for _, name := range []string{"Alpha", "Beta", "Gamma", "Alphabet"} {
		f.org(name)
	}
	var names []string
	before := ids.Nil
	for {
		page, err := f.Orgs(t.Context(), f.root, "", before, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, o := range page {
			names = append(names, o.Name)
		}
		before = page[len(page)-1].ID
	}
	if want := []string{"Alphabet", "Gamma", "Beta", "Alpha"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	found, err := f.Orgs(t.Context(), f.root, "ALPHA", ids.Nil, 0)
	if err != nil || len(found) != 2 {
		t.Errorf("search found %v, %v", found, err)
	}
}

func TestUpdateOrgTellsGateways(t *testing.T) {
	f := setup(t)
	org := f.org("Acme")
	owner := f.member(org.ID, "ann@example.com", tenants.Owner)
	zone, policy := "Europe/Berlin", tenants.PayNothing
	got, err := f.UpdateOrg(t.Context(), owner, org.ID, tenants.OrgChange{TimeZone: &zone})
	if err != nil || got.TimeZone != zone {
		t.Fatal(got, err)
	}
	if !f.bus.has("notice.key " + ids.Format(ids.Org, org.ID)) {
		t.Error("no notice")
	}
	last := f.lastAudit(org.ID)
	if last.Action != "org.update" || !strings.Contains(string(last.Before), `"UTC"`) || !strings.Contains(string(last.After), zone) ||
		last.By.Actor != ids.Format(ids.User, owner.User) {
		t.Errorf("audited %+v", last)
	}
	// The owner must not decide who pays for failures.
	_, err = f.UpdateOrg(t.Context(), owner, org.ID, tenants.OrgChange{FailurePolicy: &policy})
	wantKind(t, err, fault.Forbidden)
	if got, err := f.UpdateOrg(t.Context(), f.root, org.ID, tenants.OrgChange{FailurePolicy: &policy}); err != nil || got.FailurePolicy != policy {
		t.Error(got, err)
	}
}

// A book that has no price is most likely a name that was typed wrong; the standard one is there from the beginning.
func TestABookWithoutPricesIsRefused(t *testing.T) {
	f := setup(t)
	org := f.org("Acme")
	refused := func(err error) {
		t.Helper()
		if got := fault.Of(err); got == nil || got.Kind != fault.Conflict || got.Code != "book_without_prices" || got.Param != "price_book" {
			t.Errorf("got %v", err)
		}
	}
	book, standard, name := "nope", tenants.StandardBook, "Alphabet"
	_, err := f.UpdateOrg(t.Context(), f.root, org.ID, tenants.OrgChange{PriceBook: &book})
	refused(err)
	_, err = f.CreateOrg(t.Context(), f.root, tenants.NewOrg{Name: "Beta", PriceBook: book})
	refused(err)
	if err := f.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE orgs SET price_book = $2 WHERE org_id = $1", org.ID, book)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := f.UpdateOrg(t.Context(), f.root, org.ID, tenants.OrgChange{Name: &name, PriceBook: &book}); err != nil || got.PriceBook != book || got.Name != name {
		t.Errorf("one that has the book is renamed: %+v, %v", got, err)
	}
	if got, err := f.UpdateOrg(t.Context(), f.root, org.ID, tenants.OrgChange{PriceBook: &standard}); err != nil || got.PriceBook != standard {
		t.Errorf("back to the standard book: %+v, %v", got, err)
	}
}

func TestSuspendAndRestore(t *testing.T) {
	f := setup(t)
	org := f.org("Acme")
	first, err := f.SuspendOrg(t.Context(), f.root, org.ID)
	if err != nil || first.SuspendedAt == nil {
		t.Fatal(first, err)
	}
	again, err := f.SuspendOrg(t.Context(), f.root, org.ID)
	if err != nil || !again.SuspendedAt.After(*first.SuspendedAt) {
		t.Errorf("again: %v, %v", again, err)
	}
	if back, err := f.RestoreOrg(t.Context(), f.root, org.ID); err != nil || back.SuspendedAt != nil {
		t.Errorf("restored: %v, %v", back, err)
	}
	if got := f.actions(org.ID)[:3]; !slices.Equal(got, []string{"org.restore", "org.suspend", "org.suspend"}) {
		t.Errorf("audited %v", got)
	}
	_, err = f.SuspendOrg(t.Context(), f.root, ids.New())
	wantKind(t, err, fault.NotFound)
}

func TestProjects(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	org := f.org("Acme")
	p, err := f.CreateProject(ctx, f.root, org.ID, "Search")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.CreateProject(ctx, f.root, org.ID, "Search")
	wantKind(t, err, fault.Conflict)
	if _, err := f.RenameProject(ctx, f.root, org.ID, p.ID, "Find"); err != nil {
		t.Error(err)
	}
	_, err = f.RenameProject(ctx, f.root, org.ID, p.ID, "Default")
	wantKind(t, err, fault.Conflict)
	if got, err := f.ArchiveProject(ctx, f.root, org.ID, p.ID); err != nil || got.ArchivedAt == nil || got.Name != "Find" {
		t.Errorf("archived %+v, %v", got, err)
	}
	if !f.bus.has("notice.key " + ids.Format(ids.Org, org.ID)) {
		t.Error("no notice")
	}
	_, err = f.CreateProject(ctx, f.root, ids.New(), "Nowhere")
	wantKind(t, err, fault.NotFound)
}

// Two people archive the last two projects at once: one of them must fail.
func TestAProjectIsAlwaysLeft(t *testing.T) {
	f := setup(t)
	org := f.org("Acme")
	if _, err := f.CreateProject(t.Context(), f.root, org.ID, "Second"); err != nil {
		t.Fatal(err)
	}
	projects, err := f.Projects(t.Context(), f.root, org.ID)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(projects))
	for i, p := range projects {
		wg.Go(func() { _, errs[i] = f.ArchiveProject(t.Context(), f.root, org.ID, p.ID) })
	}
	wg.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("got %v", errs)
	}
}

// Nothing that was audited can be changed, by whichever role.
func TestTheAuditLogIsAppendOnly(t *testing.T) {
	f := setup(t)
	f.org("Acme")
	for _, sql := range []string{"UPDATE audit_log SET actor = 'nobody'", "DELETE FROM audit_log"} {
		err := f.system(func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), sql); return err })
		if err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
