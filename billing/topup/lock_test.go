package topup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/stripefake"
	"millrace/db"
)

// Whoever changes a card waits for auto_recharges before it takes payment_customers, as the file of the queries says: the
// other way round two of them would wait for each other.
func TestCardsAreLockedInOneOrder(t *testing.T) {
	for name, begin := range map[string]func(w *world) func() error{
		"removed": func(w *world) func() error {
			return func() error { return w.topups.RemoveCard(context.Background(), w.owner, w.org) }
		},
		"given": func(w *world) func() error {
			page := w.cardPage(newID())
			w.pay(page, stripefake.Way{Number: stripefake.CardMastercard})
			return func() error { return w.topups.CardAdded(context.Background(), w.owner, w.org, page) }
		},
		"given, and the person did not come back": func(w *world) func() error {
			w.hear(w.fake.Messages())
			w.pay(w.cardPage(newID()), stripefake.Way{Number: stripefake.CardMastercard})
			return w.hearing
		},
		"detached": func(w *world) func() error {
			w.hear(w.fake.Messages())
			w.must(w.gateway.Forget(context.Background(), w.method()))
			return w.hearing
		},
		"paid with": func(w *world) func() error {
			x, session := w.start(10, true)
			w.pay(session, stripefake.Way{Number: stripefake.CardMastercard})
			return func() error { _, err := w.topups.Fulfil(context.Background(), w.org, x.ID); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.allow(stripefake.CardGood, 20, 100, 500)
			change := begin(w)
			w.exec("update auto_recharges set paused = $2 where org_id = $1", w.org, map[bool]string{true: "", false: "declined"}[name == "detached"])
			done := make(chan error, 1)
			err := w.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "select from auto_recharges where org_id = $1 for no key update", w.org); err != nil {
					return err
				}
				go func() { done <- change() }()
				if err := waitForBlocked(t.Context(), tx); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), "select from payment_customers where org_id = $1 for no key update nowait", w.org)
				return err
			})
			if err != nil {
				t.Errorf("payment_customers is locked by who waits for auto_recharges: %v", err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// waitForBlocked waits until somebody waits for this transaction. It asks pg_locks: pg_stat_activity shows a transaction the
// sessions that there were when it first looked.
func waitForBlocked(ctx context.Context, tx pgx.Tx) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var blocked bool
		if err := tx.QueryRow(ctx, "select exists (select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid)))").Scan(&blocked); err != nil || blocked {
			return err
		}
	}
	return errors.New("nobody waits for auto_recharges")
}

// hearing stores what the payment provider told, and works off what is due.
func (w *world) hearing() error {
	w.store(w.fake.Messages())
	for {
		if worked, err := w.inbox.One(context.Background()); err != nil || !worked {
			return err
		}
	}
}

// method is the kept card at the payment provider.
func (w *world) method() (id string) {
	w.t.Helper()
	w.system(func(tx pgx.Tx) error {
		return tx.QueryRow(context.Background(), "select method_id from payment_customers where org_id = $1", w.org).Scan(&id)
	})
	return id
}

func (w *world) customer() (id string) {
	w.t.Helper()
	w.system(func(tx pgx.Tx) error {
		return tx.QueryRow(context.Background(), "select customer_id from payment_customers where org_id = $1", w.org).Scan(&id)
	})
	return id
}

// A card that was removed at the payment provider pauses auto-recharge, and people are told once.
func TestADetachedCardPauses(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 5, 100, 500)
	w.must(w.gateway.Forget(t.Context(), w.method()))
	for range 2 {
		w.hear(w.fake.Messages())
		w.turn()
	}
	if n := count(w.mails(), "Auto-recharge is paused"); n != 1 || w.paused() != "no_card" {
		t.Errorf("told %d times, paused %q", n, w.paused())
	}
}
