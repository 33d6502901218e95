package invoice_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/ids"
)

// locks are what is locked, in doc.go's order; $1 is the organization.
var locks = []struct{ name, sql string }{
	{"approvals", "select pg_advisory_xact_lock(hashtextextended('approvals of ' || $1::uuid::text, 0))"},
	{"invoices", "select from invoices where org_id = $1 order by id for no key update"},
	{"orgs", "select from orgs where org_id = $1 for no key update"},
	{"ledger balances", "select from ledger_balances where org_id = $1 order by account for no key update"},
	{"budgets", "select from budgets where org_id = $1 order by id for no key update"},
	{"invoice pushes", "select from invoice_pushes where org_id = $1 order by invoice_id for no key update"},
	{"series of numbers", "select from invoice_series where $1::uuid is not null order by series for no key update"},
}

// Whoever waits for something holds nothing that comes later: nobody waits in a circle.
func TestEverybodyLocksInOneOrder(t *testing.T) {
	for name, begin := range map[string]func(s *shop) func() error{
		"written off": func(s *shop) func() error {
			id := s.bill(100_00)
			return func() error {
				_, err := s.bills.WriteOff(context.Background(), operator, s.org, id, "They are gone.", "w")
				return err
			}
		},
		"credited": func(s *shop) func() error {
			id := s.paidThere(100_00)
			return func() error { return s.note(id, 40_00, invoice.BackByStripe) }
		},
		"paid by hand": func(s *shop) func() error {
			id := s.bill(100_00)
			s.turn()
			return func() error {
				_, err := s.bills.RecordPayment(context.Background(), operator, s.org, id, invoice.PaymentInput{Cents: 40_00, Reference: "transfer", IdempotencyKey: "p"})
				return err
			}
		},
		"that never came": func(s *shop) func() error {
			id := s.bill(100_00)
			payment := s.byHand(id, 100_00)
			return func() error {
				_, err := s.bills.ReversePayment(context.Background(), operator, s.org, id, payment, "It never came.")
				return err
			}
		},
		"paid there": func(s *shop) func() error {
			id := s.bill(100_00)
			s.turn()
			s.fake.PayInvoice(s.refOf(id), stripefake.Way{Number: stripefake.CardGood})
			return func() error { return s.collect.Settle(context.Background(), s.org, id) }
		},
		"disputed": func(s *shop) func() error {
			id := s.paidThere(100_00)
			s.must(s.fake.Dispute(s.paymentOf(id)))
			return func() error { return s.collect.Settle(context.Background(), s.org, id) }
		},
		"restricted": func(s *shop) func() error {
			s.bill(100_00)
			s.turn()
			s.clock.Advance((14 + 30) * aDay)
			return func() error { return s.collect.Dun(context.Background()) }
		},
	} {
		for n, held := range locks {
			t.Run(name+", behind "+held.name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				do, done := begin(s), make(chan error, 1)
				err := s.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), held.sql, s.org); err != nil {
						return err
					}
					go func() { done <- do() }()
					blocked, err := blocks(t.Context(), tx, done)
					if err != nil || !blocked {
						return err
					}
					for _, later := range locks[n+1:] {
						if _, err := tx.Exec(t.Context(), later.sql+" nowait", s.org); err != nil {
							t.Errorf("%s are locked by who waits for %s: %v", later.name, held.name, err)
							return nil
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// blocks waits until somebody waits for this transaction, or did not need to.
func blocks(ctx context.Context, tx pgx.Tx, done chan error) (blocked bool, err error) {
	for range time.Tick(5 * time.Millisecond) {
		err := tx.QueryRow(ctx, "select exists (select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid)))").Scan(&blocked)
		if err != nil || blocked {
			return blocked, err
		}
		select {
		case err := <-done:
			done <- nil
			return false, err
		case <-ctx.Done():
			return false, ctx.Err()
		default:
		}
	}
	return false, nil
}

// wantNoDeadlock ends the shop's use of its database: only a session that ended has told how often it waited in a circle. Whoever
// did was tried again, and nobody else noticed.
func (s *shop) wantNoDeadlock(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dbtest.Superuser(t, s.url))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	s.db.Close()
	for range time.Tick(5 * time.Millisecond) {
		var sessions, deadlocks int
		err := conn.QueryRow(t.Context(), `select (select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'),
			deadlocks from pg_stat_database where datname = current_database()`).Scan(&sessions, &deadlocks)
		if err != nil {
			t.Fatal(err)
		}
		if deadlocks > 0 {
			t.Fatalf("%d deadlocks", deadlocks)
		}
		if sessions == 0 {
			return
		}
	}
}

// Write-offs, limits, suspensions, dunning, payments and refunds of one organization at once.
func TestWritingOffBesideEverything(t *testing.T) {
	s := newShop(t)
	var bills []ids.ID
	paid := s.paidThere(100_00)
	for range 8 {
		s.month = s.month.AddDate(0, 1, 0)
		bills = append(bills, s.bill(10_00))
	}
	s.giveUp(bills[0]) // so that every account has a balance: doc.go
	bills = bills[1:]
	s.clock.Advance((14 + 14) * aDay)
	s.together(t, len(bills), s.limits(), s.suspensions(t), s.dunning(), s.dunning(), s.refunds(paid),
		func(n int) error {
			_, err := s.bills.WriteOff(context.Background(), operator, s.org, bills[n], "They are gone.", ids.New().String())
			return err
		})
	for _, id := range bills {
		if i := s.get(id); i.State != invoice.Uncollectible {
			t.Errorf("%s is %s", i.Number, i.State)
		}
	}
	s.sound()
	s.wantNoDeadlock(t)
}
