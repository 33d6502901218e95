package db_test

import (
	"errors"
	"testing"

	"millrace/db"
	"millrace/db/dbtest"
)

func TestOneProcessWithItsOwnBus(t *testing.T) {
	url := dbtest.URL(t)
	open := func() *db.DB {
		d, err := db.Open(t.Context(), url, db.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		return d
	}
	a, b := open(), open()
	release, err := a.Presence(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, alone := range []bool{true, false} {
		if _, err := b.Presence(t.Context(), alone); !errors.Is(err, db.ErrNotAlone) {
			t.Errorf("beside one that is alone (alone=%v): %v", alone, err)
		}
	}
	release()
	one, err := a.Presence(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer one()
	two, err := b.Presence(t.Context(), false)
	if err != nil {
		t.Fatal("two on a shared bus:", err)
	}
	defer two()
	if _, err := b.Presence(t.Context(), true); !errors.Is(err, db.ErrNotAlone) {
		t.Error("alone beside two:", err)
	}
}
