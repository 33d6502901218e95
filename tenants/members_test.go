package tenants_test

import (
	"sync"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

func TestOneOwnerIsAlwaysLeft(t *testing.T) {
	f := setup(t)
	org := f.org("Acme")
	ann := f.member(org.ID, "ann@example.com", tenants.Owner)
	bob := f.member(org.ID, "bob@example.com", tenants.Owner)
	// Each leaves or steps down at the same moment.
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = f.RemoveMember(t.Context(), ann, org.ID, ann.User) })
	wg.Go(func() { errs[1] = f.SetRole(t.Context(), bob, org.ID, bob.User, tenants.Viewer) })
	wg.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("got %v", errs)
	}
	for _, err := range errs {
		if err != nil && !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v", err)
		}
	}
	owners := 0
	members, err := f.Members(t.Context(), f.root, org.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.Role == tenants.Owner {
			owners++
		}
	}
	if owners != 1 {
		t.Errorf("%d owners left", owners)
	}
}

func TestOnlyOwnersTouchOwners(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	org := f.org("Acme")
	owner := f.member(org.ID, "ann@example.com", tenants.Owner)
	admin := f.member(org.ID, "bob@example.com", tenants.Admin)
	_, err := f.AddMember(ctx, admin, org.ID, "eve@example.com", tenants.Owner)
	wantKind(t, err, fault.Forbidden)
	wantKind(t, f.SetRole(ctx, admin, org.ID, admin.User, tenants.Owner), fault.Forbidden)
	wantKind(t, f.SetRole(ctx, admin, org.ID, owner.User, tenants.Viewer), fault.Forbidden)
	wantKind(t, f.RemoveMember(ctx, admin, org.ID, owner.User), fault.Forbidden)
	if err := f.SetRole(ctx, owner, org.ID, admin.User, tenants.Owner); err != nil {
		t.Error(err)
	}
}

func TestMembers(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	org := f.org("Acme")
	f.member(org.ID, "ann@example.com", tenants.Owner)
	viewer := f.member(org.ID, "vic@example.com", tenants.Viewer)
	_, err := f.AddMember(ctx, f.root, org.ID, "VIC@example.com", tenants.Admin)
	wantKind(t, err, fault.Conflict)
	_, err = f.AddMember(ctx, f.root, org.ID, "x@example.com", "king")
	wantKind(t, err, fault.Invalid)
	wantKind(t, f.SetRole(ctx, f.root, org.ID, ids.New(), tenants.Viewer), fault.NotFound)
	wantKind(t, f.RemoveMember(ctx, viewer, org.ID, ids.New()), fault.Forbidden)
	if err := f.RemoveMember(ctx, viewer, org.ID, viewer.User); err != nil {
		t.Errorf("leaving: %v", err)
	}
	_, err = f.ActorIn(ctx, tenants.User{ID: viewer.User}, org.ID)
	wantKind(t, err, fault.NotFound)
}

func TestMembershipsAreOnesOwn(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	a, b := f.org("Acme"), f.org("Bolt")
	ann := f.member(a.ID, "ann@example.com", tenants.Owner)
	f.member(b.ID, "ann@example.com", tenants.Viewer)
	got, err := f.Memberships(ctx, ann, ann.User)
	if err != nil || len(got) != 2 || got[0].Name != "Acme" || got[0].Role != tenants.Owner || got[1].Role != tenants.Viewer {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = f.Memberships(ctx, tenants.Actor{User: ids.New()}, ann.User)
	wantKind(t, err, fault.Forbidden)
	_, err = f.Memberships(ctx, tenants.Actor{}, ids.Nil)
	wantKind(t, err, fault.Forbidden)
}
