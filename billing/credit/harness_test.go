package credit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

const usd = money.NanoPerUSD

// tester is what *testing.T and *rapid.T share.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// house is a database, a bus, a desk, and whoever pays.
type house struct {
	db    *db.DB
	bus   *bus.Bus
	desk  *credit.Desk
	url   string
	locks string
}

func open(t *testing.T) *house {
	t.Helper()
	h := &house{url: dbtest.URL(t), bus: dbtest.Bus(t), locks: t.TempDir()}
	h.db = dial(t, h.url)
	h.desk = newDesk(h)
	return h
}

func newDesk(h *house) *credit.Desk { return credit.NewDesk(h.db, clock.System, h.bus) }

// gateway opens a gateway's allotments; it closes or crashes when the test ends.
func (h *house) gateway(t *testing.T, change ...func(c *credit.Config)) *credit.Allotments {
	t.Helper()
	// A busy machine may answer slowly. Only who must be refused waits this long.
	c := credit.Config{DB: h.db, Bus: h.bus, Process: "test", LockDir: h.locks, RecallWait: 2 * time.Second}
	for _, fn := range change {
		fn(&c)
	}
	a, err := credit.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Crash)
	return a
}

func (h *house) system(t tester, fn func(tx pgx.Tx) error) {
	t.Helper()
	if err := h.db.InTx(context.Background(), db.System(), fn); err != nil {
		t.Fatal(err)
	}
}

func (h *house) exec(t tester, sql string, args ...any) {
	t.Helper()
	h.system(t, func(tx pgx.Tx) error { _, err := tx.Exec(context.Background(), sql, args...); return err })
}

// superuser runs what no role of the program may do.
func (h *house) superuser(t *testing.T, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dbtest.Superuser(t, h.url))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func query[T any](h *house, t tester, sql string, args ...any) (v T) {
	t.Helper()
	h.system(t, func(tx pgx.Tx) error { return tx.QueryRow(context.Background(), sql, args...).Scan(&v) })
	return v
}

// org makes an organization with a project and a key, and gives it credit.
func (h *house) org(t tester, amount money.Nano) credit.Payer {
	t.Helper()
	p := credit.Payer{Org: ids.New(), Project: ids.New(), TimeZone: "Europe/Berlin"}
	h.exec(t, "insert into orgs (org_id, name, time_zone) values ($1, 'Test', $2)", p.Org, p.TimeZone)
	h.exec(t, "insert into projects (org_id, id, name) values ($1, $2, 'Default')", p.Org, p.Project)
	p = h.key(t, p)
	if amount > 0 {
		h.grant(t, p.Org, amount)
	}
	return p
}

// key makes another key of the payer's project.
func (h *house) key(t tester, p credit.Payer) credit.Payer {
	t.Helper()
	p.Key = ids.New()
	h.exec(t, "insert into api_keys (org_id, id, project_id, name, hash, prefix, last4) values ($1, $2, $3, 'k', $4, 'mr', '1234')",
		p.Org, p.Key, p.Project, p.Key[:])
	return p
}

func (h *house) grant(t tester, org ids.ID, amount money.Nano) {
	t.Helper()
	_, fresh, err := h.desk.Grant(context.Background(), tenants.System(), credit.GrantInput{Org: org, Kind: credit.Paid, Amount: amount,
		Reason: "test", IdempotencyKey: ids.New().String()})
	if err != nil || !fresh {
		t.Fatalf("grant: %v, %v", fresh, err)
	}
}

func (h *house) setCap(t tester, org ids.ID, c credit.Cap) credit.Cap {
	t.Helper()
	set, err := h.desk.SetCap(context.Background(), tenants.System(), org, c)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// check compares every budget with its allotments, and what is held in rows with the caps.
func (h *house) check(t tester, capsNeverFell bool) {
	t.Helper()
	h.system(t, func(tx pgx.Tx) error {
		rows, err := tx.Query(context.Background(), `
			select b.id, b.cap_nano, b.settled_nano, b.outstanding_nano,
			       coalesce((select sum(allotted_nano - used_nano - returned_nano) from allotments a where a.budget_id = b.id), 0)::bigint
			from budgets b`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id ids.ID
			var capNano, settled, outstanding, sum int64
			if err := rows.Scan(&id, &capNano, &settled, &outstanding, &sum); err != nil {
				return err
			}
			if outstanding != sum {
				return fmt.Errorf("budget %s: outstanding %d, its allotments have %d", id, outstanding, sum)
			}
			if capsNeverFell && settled+outstanding > capNano {
				return fmt.Errorf("budget %s: settled %d + outstanding %d > cap %d", id, settled, outstanding, capNano)
			}
		}
		return rows.Err()
	})
}

// rate does what the rater does with a charge: allotments, then budgets, both in order.
func (h *house) rate(t tester, epoch ids.ID, org ids.ID, budgets []ids.ID, charge money.Nano) {
	t.Helper()
	h.system(t, func(tx pgx.Tx) error { return rateIn(tx, epoch, org, budgets, charge) })
}

func rateIn(tx pgx.Tx, epoch ids.ID, org ids.ID, budgets []ids.ID, charge money.Nano) error {
	for _, sql := range []string{
		"select from allotments where org_id = $1 and budget_id = $2 and epoch_id = $3 for no key update",
		"update allotments set used_nano = used_nano + $4 where org_id = $1 and budget_id = $2 and epoch_id = $3",
		"update budgets set settled_nano = settled_nano + $3, outstanding_nano = outstanding_nano - $3 where org_id = $1 and id = $2",
	} {
		for _, b := range budgets {
			args := []any{org, b, epoch, int64(charge)}
			switch {
			case sql[:6] == "select":
				args = args[:3]
			case sql[:8] == "update b":
				args = []any{org, b, int64(charge)}
			}
			if _, err := tx.Exec(context.Background(), sql, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func mustHold(t *testing.T, a *credit.Allotments, p credit.Payer, amount money.Nano) *credit.Hold {
	t.Helper()
	hold, err := a.Hold(t.Context(), p, amount)
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

func mustRefuse(t *testing.T, a *credit.Allotments, p credit.Payer, amount money.Nano, kind fault.Kind) *fault.Fault {
	t.Helper()
	hold, err := a.Hold(t.Context(), p, amount)
	if err == nil {
		hold.Release()
		t.Fatalf("%s USD were held", amount)
	}
	if !fault.Is(err, kind) {
		t.Fatalf("want %s, got %v", kind, err)
	}
	return fault.Of(err)
}

var systemScope = db.System()
