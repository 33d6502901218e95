package audit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/ids"
	"millrace/tenants/audit"
)

type author audit.Identity

func (a author) AuditIdentity() audit.Identity { return audit.Identity(a) }

type thing struct {
	Color string `json:"color"`
}

func TestEntriesBelongToTheirTransactionAndOrganization(t *testing.T) {
	d := dbtest.New(t)
	ctx := t.Context()
	org, other := ids.New(), ids.New()
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	by := author{Actor: "user_1", ActingAs: "user_2", RequestID: "req_1", IP: "192.0.2.1"}
	change := audit.Change{Org: org, Action: "thing.paint", Target: "thing_1", Before: thing{"red"}, After: thing{"blue"}, At: at}
	failed := errors.New("the change failed")
	err := d.InTx(ctx, db.Org(org), func(tx pgx.Tx) error {
		if err := audit.Append(ctx, tx, by, change); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	change.Before = nil
	if err := d.InTx(ctx, db.Org(org), func(tx pgx.Tx) error { return audit.Append(ctx, tx, by, change) }); err != nil {
		t.Fatal(err)
	}
	// Another organization's entry cannot be written in this one's name, nor seen.
	if err := d.InTx(ctx, db.Org(other), func(tx pgx.Tx) error { return audit.Append(ctx, tx, by, change) }); err == nil {
		t.Error("an entry was written into another organization")
	}
	entries := func(scope, of ids.ID) (got []audit.Entry) {
		t.Helper()
		err := d.InTx(ctx, db.Org(scope), func(tx pgx.Tx) (err error) {
			got, err = audit.List(ctx, tx, of, ids.Nil, 10)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := entries(other, org); len(got) != 0 {
		t.Errorf("another organization sees %+v", got)
	}
	got := entries(org, org)
	if len(got) != 1 {
		t.Fatalf("%d entries, want the one that was committed", len(got))
	}
	got[0].ID = ids.Nil
	want := audit.Entry{Org: org, At: at, By: audit.Identity(by), Action: "thing.paint", Target: "thing_1", After: []byte(`{"color": "blue"}`)}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Error(diff)
	}
}

func TestWhatCannotBeEncodedIsAnError(t *testing.T) {
	d := dbtest.New(t)
	err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		return audit.Append(t.Context(), tx, author{Actor: "system"}, audit.Change{Action: "a", Target: "t", After: func() {}})
	})
	if err == nil {
		t.Fatal("no error")
	}
}
