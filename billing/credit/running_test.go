package credit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/money"
	"millrace/tenants"
)

// atOnce is within what a cap is enforced everywhere. The bus and the database of a test are slower than that on a bad day.
const atOnce = time.Second

// mustEnd waits until the running request gets nothing more, not even a nano-dollar, and gives what its client is told.
func mustEnd(t *testing.T, hold *credit.Hold) *fault.Fault {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		err := hold.Extend(t.Context(), 1)
		if fault.Is(err, fault.OutOfCredit) {
			if took := time.Since(began); took > 5*atOnce {
				t.Errorf("it took %v", took)
			}
			return fault.Of(err)
		}
		if err != nil || time.Since(began) > 20*atOnce {
			t.Fatalf("it was extended: %v", err)
		}
	}
}

// What runs under a cap that falls below what is taken of it gets nothing more, at every gateway.
func TestALoweredCapEndsRunningRequests(t *testing.T) {
	for name, lower := range map[string]func(h *house, p credit.Payer, c credit.Cap) string{
		"the key's": func(h *house, p credit.Payer, c credit.Cap) string {
			c.Amount = 9 * usd
			h.setCap(t, p.Org, c)
			return "The API key's monthly budget of 9 USD is used up."
		},
		"the credit limit": func(h *house, p credit.Payer, _ credit.Cap) string {
			if err := h.desk.SetCreditLimit(t.Context(), tenants.System(), p.Org, 9*usd); err != nil {
				t.Fatal(err)
			}
			return "The organization's credit is used up."
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			p := h.org(t, 0)
			if err := h.desk.SetCreditLimit(t.Context(), tenants.System(), p.Org, 1000*usd); err != nil {
				t.Fatal(err)
			}
			c := h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 100 * usd})
			var running []*credit.Hold
			for range 2 {
				hold := mustHold(t, h.gateway(t, func(c *credit.Config) { c.RecallWait = 200 * time.Millisecond }), p, 5*usd)
				if err := hold.Extend(t.Context(), usd/10); err != nil {
					t.Fatal(err)
				}
				running = append(running, hold)
			}
			want := lower(h, p, c)
			for _, hold := range running {
				if f := mustEnd(t, hold); !strings.HasPrefix(f.Message, want) {
					t.Errorf("%q", f.Message)
				}
			}
			for _, hold := range running {
				hold.Settle(hold.Amount())
			}
			h.check(t, false)
		})
	}
}

// What one request frees under a fallen cap is not another one's, running or new, before the sum is below the cap.
func TestWhatIsFreedUnderAFallenCapGoesBack(t *testing.T) {
	h := open(t)
	p := h.org(t, 0)
	limit := func(usds int64) {
		t.Helper()
		if err := h.desk.SetCreditLimit(t.Context(), tenants.System(), p.Org, money.Nano(usds)*usd); err != nil {
			t.Fatal(err)
		}
	}
	limit(60)
	a := h.gateway(t)
	first, second, third := mustHold(t, a, p, 20*usd), mustHold(t, a, p, 20*usd), mustHold(t, a, p, 20*usd)
	limit(45)
	mustEnd(t, third)
	first.Settle(10 * usd) // 50 are taken
	if err := third.Extend(t.Context(), usd); !fault.Is(err, fault.OutOfCredit) {
		t.Errorf("a running request: %v", err)
	}
	mustRefuse(t, a, p, usd, fault.OutOfCredit)
	second.Settle(10 * usd) // 40
	if err := third.Extend(t.Context(), 5*usd); err != nil {
		t.Errorf("what is below the limit: %v", err)
	}
	mustRefuse(t, a, p, 1, fault.OutOfCredit)
	third.Settle(0) // 20
	mustHold(t, a, p, 25*usd).Release()
	mustRefuse(t, a, p, 25*usd+1, fault.OutOfCredit)
	h.check(t, false)
}

// A cap that is new counts running requests from their next extension on, with all that they hold and will pay.
func TestANewCapIsJoinedByRunningRequests(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	a := h.gateway(t)
	running, long := mustHold(t, a, p, 5*usd), mustHold(t, a, h.key(t, p), 50*usd)
	if n := len(running.Budgets()); n != 1 {
		t.Fatalf("%d budgets", n)
	}
	h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 8 * usd})
	h.setCap(t, p.Org, credit.Cap{Scope: credit.ProjectScope, ScopeID: p.Project, Period: period.Day, Amount: 20 * usd})
	eventually(t, "the caps are known", func() bool { return !spendable(t, a, p, 8*usd+1) })
	if err := running.Extend(t.Context(), usd); err != nil {
		t.Fatal(err)
	}
	if b := running.Budgets(); len(b) != 3 || !slices.Contains(b, running.OrgBudget()) {
		t.Errorf("budgets %v", b)
	}
	if spendable(t, a, p, 2*usd+1) || !spendable(t, a, p, 2*usd) {
		t.Error("a cap of 8 does not count the 6 that a running request holds")
	}
	if err := running.Extend(t.Context(), 2*usd+1); !fault.Is(err, fault.OutOfCredit) {
		t.Errorf("above the cap: %v", err)
	}
	if f := mustEnd(t, long); !strings.HasPrefix(f.Message, "What is left of the project's daily budget of 20 USD") && !strings.HasPrefix(f.Message, "The project's daily budget of 20 USD") {
		t.Errorf("%q", f.Message) // it holds more than the cap: what is held was taken before
	}
	running.Settle(6 * usd)
	h.rate(t, running.Epoch(), p.Org, running.Budgets(), 6*usd)
	if got := query[int64](h, t, "select settled_nano from budgets where org_id = $1 and scope = 'key'", p.Org); got != int64(6*usd) {
		t.Errorf("the key's cap counts %d", got)
	}
	long.Settle(50 * usd)
	h.check(t, false)
}

// A request is of the periods that it began in: a cap of a period that began later does not count it.
func TestANewCapDoesNotCountWhatBeganBeforeItsPeriod(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	berlin, err := time.LoadLocation(p.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	now := clock.NewManual(time.Date(2026, 10, 20, 23, 59, 0, 0, berlin))
	h.desk = credit.NewDesk(h.db, now, h.bus)
	a := h.gateway(t, func(c *credit.Config) { c.Clock, c.Validity, c.Heartbeat = now, 100*time.Hour, time.Hour })
	running := mustHold(t, a, p, 5*usd)
	now.Advance(2 * time.Minute)
	h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Day, Amount: usd})
	h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 50 * usd})
	eventually(t, "the cap is known", func() bool { return !spendable(t, a, p, usd+1) })
	if err := running.Extend(t.Context(), 5*usd); err != nil || len(running.Budgets()) != 2 {
		t.Errorf("%v, budgets %v", err, running.Budgets())
	}
	running.Release()
	h.check(t, true)
}

// What runs under a cap that is removed goes on.
func TestARemovedCapHoldsNobodyBack(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	c := h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 10 * usd})
	a := h.gateway(t)
	running := mustHold(t, a, p, 10*usd)
	if err := h.desk.RemoveCap(t.Context(), tenants.System(), p.Org, c.ID); err != nil {
		t.Fatal(err)
	}
	if err := running.Extend(t.Context(), 5*usd); err != nil {
		t.Error(err)
	}
	running.Settle(15 * usd)
	h.rate(t, running.Epoch(), p.Org, running.Budgets(), 15*usd)
	c.Amount = 12 * usd
	h.setCap(t, p.Org, c) // it counts what its budget has
	eventually(t, "the cap is known", func() bool { return !spendable(t, a, p, 1) })
	h.check(t, false)
}
