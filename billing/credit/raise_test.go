package credit_test

import (
	"context"
	"testing"
	"time"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

func TestARaisedCapHoldsAgainByTheClock(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	a := h.gateway(t)
	set := h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 2 * usd})
	mustRefuse(t, a, p, 3*usd, fault.OutOfCredit)
	// No worker runs here: nothing but the clock ends it.
	until := time.Now().Add(3 * time.Second)
	raised, err := h.desk.RaiseCap(t.Context(), tenants.System(), p.Org, set.ID, 5*usd, until)
	if err != nil || raised.Allowed(time.Now()) != 5*usd || raised.Allowed(until) != 2*usd {
		t.Fatalf("%+v, %v", raised, err)
	}
	var hold *credit.Hold
	eventually(t, "the raise reaches the gateway", func() bool {
		if h, err := a.Hold(t.Context(), p, 3*usd); err == nil {
			hold = h
		} else if time.Now().After(until) {
			t.Skip("the machine was too slow to use the raise while it lasted")
		}
		return hold != nil
	})
	hold.Release()
	eventually(t, "the raise ends", func() bool {
		hold, err := h.gateway(t).Hold(t.Context(), p, 3*usd)
		if err == nil {
			hold.Release()
		}
		return fault.Is(err, fault.OutOfCredit)
	})
}

func TestRaisesThatAreRefused(t *testing.T) {
	h := open(t)
	p := h.org(t, usd)
	hard := h.setCap(t, p.Org, credit.Cap{Scope: credit.OrgScope, ScopeID: p.Org, Period: period.Day, Amount: 2 * usd})
	soft := h.setCap(t, p.Org, credit.Cap{Scope: credit.OrgScope, ScopeID: p.Org, Period: period.Month, Amount: 2 * usd, AlertOnly: true})
	hour := time.Now().Add(time.Hour)
	for name, x := range map[string]struct {
		id    ids.ID
		until time.Time
		kind  fault.Kind
		by    tenants.Actor
	}{
		"no such cap": {ids.New(), hour, fault.NotFound, tenants.System()},
		"only alerts": {soft.ID, hour, fault.Conflict, tenants.System()},
		"in the past": {hard.ID, time.Now().Add(-time.Second), fault.Invalid, tenants.System()},
		"for good":    {hard.ID, time.Now().Add(32 * 24 * time.Hour), fault.Invalid, tenants.System()},
		"a developer": {hard.ID, hour, fault.Forbidden, tenants.Actor{Org: p.Org, Role: tenants.Developer}},
		"a stranger":  {hard.ID, hour, fault.NotFound, tenants.Actor{Org: ids.New(), Role: tenants.Owner}},
	} {
		if _, err := h.desk.RaiseCap(t.Context(), x.by, p.Org, x.id, 5*usd, x.until); !fault.Is(err, x.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := h.desk.RaiseCap(t.Context(), tenants.System(), p.Org, hard.ID, usd, hour); !fault.Is(err, fault.Invalid) {
		t.Errorf("raised to less: %v", err)
	}
}

func TestACapThatOnlyAlerts(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	soft := credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 2 * usd, AlertOnly: true}
	h.setCap(t, p.Org, soft)
	a := h.gateway(t)
	mustHold(t, a, p, 50*usd).Release()
	soft.AlertOnly = false
	h.setCap(t, p.Org, soft)
	eventually(t, "a hard cap refuses", func() bool {
		hold, err := a.Hold(t.Context(), p, 50*usd)
		if err == nil {
			hold.Release()
		}
		return fault.Is(err, fault.OutOfCredit)
	})
}

// A cap that is set below what the period has cost alerts at once, and once.
func TestASetCapAlertsAtWhatIsPassed(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	c := credit.Cap{Scope: credit.OrgScope, ScopeID: p.Org, Period: period.Total, Amount: 50 * usd}
	h.setCap(t, p.Org, c)
	h.exec(t, "update budgets set settled_nano = $2 where org_id = $1 and kind = 'cap'", p.Org, int64(9*usd))
	alerts := func() int64 {
		return query[int64](h, t, "select coalesce(sum(percent), 0)::bigint from cap_alerts where org_id = $1", p.Org)
	}
	if n := alerts(); n != 0 {
		t.Errorf("alerts at %d %%", n)
	}
	for range 2 {
		c.Amount = 10 * usd
		h.setCap(t, p.Org, c)
		if n := alerts(); n != 50+80 {
			t.Errorf("alerts add up to %d %%", n)
		}
	}
	if err := h.desk.RemoveCap(context.Background(), tenants.System(), p.Org, h.setCap(t, p.Org, c).ID); err != nil {
		t.Fatal(err)
	}
}
