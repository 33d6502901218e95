package credit_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

func TestGrantsAreCreditAndBooks(t *testing.T) {
	h := open(t)
	p := h.org(t, 0)
	give := func(kind credit.GrantKind, amount money.Nano, key string) (credit.Grant, bool, error) {
		return h.desk.Grant(t.Context(), tenants.System(), credit.GrantInput{Org: p.Org, Kind: kind, Amount: amount, Reason: " welcome ", IdempotencyKey: key})
	}
	first, fresh, err := give(credit.Promotional, 5*usd, "a")
	if err != nil || !fresh || first.Reason != "welcome" || first.CreatedBy != "system" {
		t.Fatalf("%+v, %v, %v", first, fresh, err)
	}
	if again, fresh, err := give(credit.Promotional, 5*usd, "a"); err != nil || fresh || again.ID != first.ID {
		t.Errorf("a repeated request: %+v, %v, %v", again, fresh, err)
	}
	if _, _, err := give(credit.Promotional, 6*usd, "a"); !fault.Is(err, fault.Conflict) {
		t.Errorf("other credit under the same key: %v", err)
	}
	if _, _, err := give(credit.Paid, 20*usd, "b"); err != nil {
		t.Fatal(err)
	}
	h.system(t, func(tx pgx.Tx) error {
		_, _, err := credit.GiveCredit(t.Context(), tx, credit.GrantInput{Org: p.Org, Kind: credit.Paid, Amount: 7 * usd, Reason: "card",
			IdempotencyKey: "c", Actor: "system", From: ledger.StripeClearing}, time.Now())
		return err
	})
	b, err := h.desk.Balance(t.Context(), tenants.Actor{Org: p.Org, Role: tenants.Viewer}, p.Org)
	if err != nil || b != (credit.Balance{Cap: 32 * usd, Available: 32 * usd, Paid: 27 * usd, Promo: 5 * usd}) {
		t.Errorf("%+v, %v", b, err)
	}
	h.system(t, func(tx pgx.Tx) error {
		accounts, err := ledger.Balances(t.Context(), tx, p.Org)
		if accounts[ledger.Cash] != 20*usd || accounts[ledger.StripeClearing] != 7*usd || accounts[ledger.PromoCost] != 5*usd {
			t.Errorf("%v", accounts)
		}
		return err
	})
	grants, err := h.desk.Grants(t.Context(), tenants.Actor{Org: p.Org, Role: tenants.Billing}, p.Org, 10)
	if err != nil || len(grants) != 3 || grants[2].ID != first.ID {
		t.Errorf("%+v, %v", grants, err)
	}
	if n := query[int64](h, t, "select count(*) from audit_log where action = 'credit.grant'"); n != 2 {
		t.Errorf("%d entries in the audit log", n)
	}
}

func TestGrantsThatAreRefused(t *testing.T) {
	h := open(t)
	p := h.org(t, 0)
	for name, spoil := range map[string]func(*credit.GrantInput){
		"nothing":      func(in *credit.GrantInput) { in.Amount = 0 },
		"negative":     func(in *credit.GrantInput) { in.Amount = -1 },
		"too much":     func(in *credit.GrantInput) { in.Amount = credit.MaxGrant + 1 },
		"no reason":    func(in *credit.GrantInput) { in.Reason = " " },
		"a novel":      func(in *credit.GrantInput) { in.Reason = strings.Repeat("x", 501) },
		"no key":       func(in *credit.GrantInput) { in.IdempotencyKey = "" },
		"unknown kind": func(in *credit.GrantInput) { in.Kind = "gift" },
		"over already": func(in *credit.GrantInput) { in.ExpiresAt = time.Now().Add(time.Minute) },
		"the year 10000": func(in *credit.GrantInput) {
			in.ExpiresAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*3600))
		},
		"last of all":   func(in *credit.GrantInput) { in.Priority = 1001 },
		"no such owner": func(in *credit.GrantInput) { in.Org = ids.New() },
	} {
		in := credit.GrantInput{Org: p.Org, Kind: credit.Paid, Amount: usd, Reason: "r", IdempotencyKey: name}
		spoil(&in)
		if _, _, err := h.desk.Grant(t.Context(), tenants.System(), in); !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := credit.GrantInput{Org: p.Org, Kind: credit.Paid, Amount: usd, Reason: "r", IdempotencyKey: "k"}
	if _, _, err := h.desk.Grant(t.Context(), tenants.Actor{Org: p.Org, Role: tenants.Owner}, in); !fault.Is(err, fault.Forbidden) {
		t.Errorf("an owner gave himself credit: %v", err)
	}
	if n := query[int64](h, t, "select count(*) from credit_grants"); n != 0 {
		t.Errorf("%d grants", n)
	}
}

// A button pressed many times gives credit once.
func TestAGrantIsGivenOnce(t *testing.T) {
	h := open(t)
	p := h.org(t, 0)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			_, _, err := h.desk.Grant(t.Context(), tenants.System(), credit.GrantInput{Org: p.Org, Kind: credit.Paid, Amount: usd, Reason: "r", IdempotencyKey: "once"})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org); err != nil || b.Cap != usd || b.Paid != usd {
		t.Errorf("%+v, %v", b, err)
	}
}
