package assembly

import (
	"testing"
	"time"

	"millrace/db/dbtest"
	"millrace/internal/clock"
)

// The books are compared once a day, whoever did it last.
func TestTheBooksAreComparedOnceADay(t *testing.T) {
	now := clock.NewManual(time.Now())
	s := &Server{cfg: Config{DB: dbtest.New(t), Bus: dbtest.Bus(t), Clock: now}}
	due := func() bool {
		t.Helper()
		due, sound, err := s.reconcileDue(t.Context())
		if err != nil || !sound {
			t.Fatalf("the last comparison: %v, %v", sound, err)
		}
		return due
	}
	if !due() {
		t.Error("never compared, and not due")
	}
	if sound, err := s.reconcileOnce(t.Context()); !sound || err != nil {
		t.Fatalf("empty books: %v, %v", sound, err)
	}
	now.Advance(reconcileEvery - time.Second)
	if due() {
		t.Error("compared within a day, and due")
	}
	now.Advance(time.Second)
	if !due() {
		t.Error("a day later it is not due")
	}
}
