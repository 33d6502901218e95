package credit_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/db"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// ending gives credit that ends in two hours.
func (h *house) ending(t tester, org ids.ID, kind credit.GrantKind, amount money.Nano) credit.Grant {
	t.Helper()
	g, _, err := h.desk.Grant(context.Background(), tenants.System(), credit.GrantInput{Org: org, Kind: kind, Amount: amount, Reason: "ends",
		IdempotencyKey: ids.New().String(), ExpiresAt: time.Now().Add(2 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// spend charges as the rater does: ledger, then the budget.
func (h *house) spend(t tester, org ids.ID, amount money.Nano) {
	t.Helper()
	h.system(t, func(tx pgx.Tx) error {
		l, err := ledger.Lock(context.Background(), tx, []ids.ID{org})
		if err != nil {
			return err
		}
		entries, err := l.Spend([]ledger.Charge{{Org: org, Amount: amount}})
		if err != nil {
			return err
		}
		if _, err := l.Post(context.Background(), []ledger.Txn{{Org: org, Kind: ledger.Usage, Entries: entries[0]}}); err != nil {
			return err
		}
		_, err = tx.Exec(context.Background(), "update budgets set settled_nano = settled_nano + $2 where org_id = $1 and kind = 'balance'", org, int64(amount))
		return err
	})
}

// soundBooks checks the ledger and that what may be spent is the credit that is left.
func (h *house) soundBooks(t tester, org ids.ID) {
	t.Helper()
	err := h.db.InTx(context.Background(), db.System().Snapshot(), func(tx pgx.Tx) error {
		r, err := ledger.Verify(context.Background(), tx)
		if err == nil && !r.Sound() {
			t.Fatalf("%+v", r)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := h.desk.Balance(context.Background(), tenants.System(), org)
	if err != nil {
		t.Fatal(err)
	}
	if b.Cap-b.Settled != b.Paid+b.Promo-b.Receivable {
		t.Fatalf("the balance has %s, the ledger %s + %s - %s", b.Cap-b.Settled, b.Paid, b.Promo, b.Receivable)
	}
}

func TestCreditEnds(t *testing.T) {
	h := open(t)
	p := h.org(t, 3*usd)
	h.ending(t, p.Org, credit.Paid, 5*usd)
	h.ending(t, p.Org, credit.Promotional, 2*usd)
	if n, err := h.desk.Expire(t.Context(), time.Now().Add(2*time.Hour)); err != nil || n != 0 {
		t.Errorf("%d lots ended while usage of before their end may still come: %v", n, err)
	}
	later := time.Now().Add(3 * time.Hour)
	if n, err := h.desk.Expire(t.Context(), later); err != nil || n != 2 {
		t.Errorf("%d lots ended, %v", n, err)
	}
	if n, err := h.desk.Expire(t.Context(), later); err != nil || n != 0 {
		t.Errorf("%d lots ended twice, %v", n, err)
	}
	h.system(t, func(tx pgx.Tx) error {
		b, err := ledger.Balances(t.Context(), tx, p.Org)
		if b[ledger.Breakage] != -5*usd || b[ledger.PromoCost] != 0 || b[ledger.PrepaidPaid] != -3*usd || b[ledger.PrepaidPromo] != 0 {
			t.Errorf("%v", b)
		}
		return err
	})
	h.soundBooks(t, p.Org)
}

// What running requests hold does not end under them.
func TestWhatIsHeldEndsWhenItIsFree(t *testing.T) {
	h := open(t)
	p := h.org(t, 0)
	h.ending(t, p.Org, credit.Paid, 5*usd)
	a := h.gateway(t, func(c *credit.Config) { c.IdleAfter = 10 * time.Millisecond })
	hold := mustHold(t, a, p, 4*usd)
	later := time.Now().Add(3 * time.Hour)
	if _, err := h.desk.Expire(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org)
	if err != nil || b.Paid < 4*usd || b.Available < 0 {
		t.Fatalf("%+v, %v", b, err)
	}
	hold.Release()
	eventually(t, "the rest ends", func() bool {
		if _, err := h.desk.Expire(t.Context(), later); err != nil {
			t.Fatal(err)
		}
		b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org)
		return err == nil && b.Paid == 0 && b.Available == 0
	})
	h.soundBooks(t, p.Org)
}

// Any sequence of grants, charges, ends and failures in between keeps books and balance together.
func TestEndingCreditKeepsTheBooks(t *testing.T) {
	h := open(t)
	rapid.Check(t, func(t *rapid.T) {
		p := h.org(t, 0)
		h.grant(t, p.Org, 10*usd)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			amount := money.Nano(rapid.Int64Range(1, int64(5*usd)).Draw(t, "amount"))
			switch rapid.SampledFrom([]string{"give", "charge", "end", "crash while ending"}).Draw(t, "step") {
			case "give":
				h.ending(t, p.Org, rapid.SampledFrom([]credit.GrantKind{credit.Paid, credit.Promotional}).Draw(t, "kind"), amount)
			case "charge":
				h.spend(t, p.Org, amount)
			case "end":
				if _, err := h.desk.Expire(context.Background(), time.Now().Add(3*time.Hour)); err != nil {
					t.Fatal(err)
				}
			case "crash while ending":
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rapid.IntRange(0, 3000).Draw(t, "us"))*time.Microsecond)
				_, _ = h.desk.Expire(ctx, time.Now().Add(3*time.Hour))
				cancel()
			}
			h.soundBooks(t, p.Org)
		}
	})
}
