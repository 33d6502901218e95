package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/inbox"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// handler is told how to fail, and counts the effects that were committed.
type handler struct {
	mu      sync.Mutex
	order   []string
	failing map[string]error
	bad     map[string]error // of Apply, after it wrote
}

func (h *handler) Knows(t string) bool { return strings.HasPrefix(t, "known.") }

func (h *handler) Handle(_ context.Context, e inbox.Event) (inbox.Effect, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.failing[e.ID]; err != nil {
		return inbox.Effect{}, err
	}
	bad := h.bad[e.ID]
	return inbox.Effect{
		Apply: func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into outbox (id, recipient, subject, body) values ($1, 'test', $2, '')", ids.New(), e.ID); err != nil {
				return err
			}
			return bad
		},
		Done: func(context.Context) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.order = append(h.order, e.ID)
		},
	}, nil
}

type world struct {
	*testing.T
	db    *db.DB
	clock *clock.Manual
	h     *handler
	box   *inbox.Inbox
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, db: dbtest.New(t), clock: clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)), h: &handler{failing: map[string]error{}, bad: map[string]error{}}}
	w.box = inbox.New(w.db, w.clock, w.h)
	return w
}

// store keeps an event that happened so many seconds after the begin.
func (w *world) store(id, kind string, second int) (fresh bool) {
	w.Helper()
	fresh, err := w.box.Store(w.Context(), inbox.Webhook, inbox.Event{ID: id, Type: kind, Object: "x", Created: w.clock.Now().Add(time.Duration(second) * time.Second), Payload: []byte(`{}`)})
	if err != nil {
		w.Fatal(err)
	}
	return fresh
}

// work does everything that is due.
func (w *world) work() {
	w.Helper()
	for {
		worked, err := w.box.One(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if !worked {
			return
		}
	}
}

func (w *world) effects(id string) (n int) {
	w.Helper()
	err := w.db.InTx(w.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(w.Context(), "select count(*) from outbox where subject = $1", id).Scan(&n)
	})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) get(id string) inbox.Entry {
	w.Helper()
	e, err := w.box.Get(w.Context(), tenants.System(), id)
	if err != nil {
		w.Fatal(err)
	}
	return e
}

func TestEventsAreWorkedOffOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	w.store("evt_3", "known.a", 3)
	w.store("evt_1", "known.a", 1)
	if !w.store("evt_2", "known.b", 2) || w.store("evt_2", "known.b", 2) {
		t.Error("an event that came twice is fresh twice, or never")
	}
	w.store("evt_0", "unknown", 0)
	w.work()
	if got := strings.Join(w.h.order, " "); got != "evt_1 evt_2 evt_3" {
		t.Errorf("worked off as %s", got)
	}
	if e := w.get("evt_0"); e.State != "ignored" {
		t.Errorf("an unknown type is %s", e.State)
	}
	w.store("evt_2", "known.b", 2)
	w.work()
	if n := w.effects("evt_2"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// Two processes work at once: every event has its effect once.
func TestTwoWorkersDoNotDoThingsTwice(t *testing.T) {
	w := newWorld(t)
	const events = 20
	for i := range events {
		w.store(fmt.Sprintf("evt_%02d", i), "known.a", i)
	}
	var wg sync.WaitGroup
	for range 4 {
		other := inbox.New(w.db, w.clock, w.h)
		wg.Go(func() {
			for {
				if worked, err := other.One(w.Context()); err != nil || !worked {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	w.work()
	for i := range events {
		if n := w.effects(fmt.Sprintf("evt_%02d", i)); n != 1 {
			t.Errorf("event %d has %d effects", i, n)
		}
	}
}

func TestAFailureKeepsTheEventAndUndoesItsEffect(t *testing.T) {
	w := newWorld(t)
	w.h.bad["evt_1"] = errors.New("the database said no")
	w.store("evt_1", "known.a", 1)
	w.store("evt_2", "known.a", 2)
	w.work()
	if e := w.get("evt_1"); e.State != "new" || e.Attempts != 1 || !strings.Contains(e.Problem, "said no") || w.effects("evt_1") != 0 {
		t.Errorf("%+v, %d effects", e, w.effects("evt_1"))
	}
	if w.get("evt_2").State != "done" {
		t.Error("one failing event holds up the others")
	}
	delete(w.h.bad, "evt_1")
	w.work()
	if w.get("evt_1").State != "new" {
		t.Error("tried again before its time")
	}
	w.clock.Advance(time.Minute)
	w.work()
	if w.get("evt_1").State != "done" || w.effects("evt_1") != 1 {
		t.Errorf("%+v", w.get("evt_1"))
	}
}

// A failure's text may come from anywhere; what the database would refuse is no reason to forget the failure.
func TestAnyFailureIsNoted(t *testing.T) {
	w := newWorld(t)
	w.h.failing["evt_1"] = errors.New("the card\x00 said \xff" + strings.Repeat("ä", 1000))
	w.store("evt_1", "known.a", 1)
	w.work()
	if e := w.get("evt_1"); e.Attempts != 1 || !strings.HasPrefix(e.Problem, "the card said \uFFFDä") || len(e.Problem) > 1000 {
		t.Errorf("%d attempts, %q", e.Attempts, e.Problem)
	}
}

func TestDeadEventsWaitForAPerson(t *testing.T) {
	w := newWorld(t)
	w.h.failing["evt_1"] = errors.New("always")
	w.h.failing["evt_2"] = fault.New(fault.Conflict, "It does not match.")
	w.store("evt_1", "known.a", 1)
	w.store("evt_2", "known.a", 2)
	for range inbox.MaxAttempts {
		w.work()
		w.clock.Advance(time.Hour)
	}
	for id, attempts := range map[string]int{"evt_1": inbox.MaxAttempts, "evt_2": 1} {
		if e := w.get(id); e.State != "dead" || e.Attempts != attempts {
			t.Errorf("%+v", e)
		}
	}
	by := tenants.System()
	if list, err := w.box.Waiting(t.Context(), by); err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	member := tenants.Actor{User: ids.New(), Org: ids.New(), Role: tenants.Owner}
	for name, fn := range map[string]func() error{
		"list": func() error { _, err := w.box.Waiting(t.Context(), member); return err }, "get": func() error { _, err := w.box.Get(t.Context(), member, "evt_1"); return err },
		"retry": func() error { return w.box.Retry(t.Context(), member, "evt_1") }, "dismiss": func() error { return w.box.Dismiss(t.Context(), member, "evt_1", "no") },
	} {
		if err := fn(); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s by a customer: %v", name, err)
		}
	}
	delete(w.h.failing, "evt_1")
	if err := w.box.Retry(t.Context(), by, "evt_1"); err != nil {
		t.Fatal(err)
	}
	w.work()
	if w.get("evt_1").State != "done" || w.effects("evt_1") != 1 {
		t.Errorf("%+v", w.get("evt_1"))
	}
	if err := w.box.Dismiss(t.Context(), by, "evt_2", " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a reason: %v", err)
	}
	if err := w.box.Dismiss(t.Context(), by, "evt_2", "Refunded by hand"); err != nil {
		t.Fatal(err)
	}
	if err := w.box.Retry(t.Context(), by, "evt_2"); !fault.Is(err, fault.Conflict) {
		t.Errorf("decided twice: %v", err)
	}
	var actions []string
	err := w.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		entries, err := audit.List(t.Context(), tx, ids.Nil, ids.Nil, 10)
		for _, e := range entries {
			actions = append(actions, e.Action+" "+e.Target)
		}
		return err
	})
	if got := strings.Join(actions, ", "); err != nil || got != "payment_event.dismiss evt_2, payment_event.retry evt_1" {
		t.Errorf("audited: %s, %v", got, err)
	}
}

func TestWhatIsNoEventIsRefused(t *testing.T) {
	w := newWorld(t)
	for name, e := range map[string]inbox.Event{"no id": {Type: "known.a"}, "no type": {ID: "evt_1"}, "too large": {ID: "evt_1", Type: "known.a", Payload: make([]byte, inbox.MaxPayload+1)}} {
		if _, err := w.box.Store(t.Context(), inbox.Webhook, e); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
