package credit_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// spendable reports whether the gateway holds this amount, and gives it back.
func spendable(t *testing.T, a *credit.Allotments, p credit.Payer, amount money.Nano) bool {
	t.Helper()
	hold, err := a.Hold(t.Context(), p, amount)
	if err != nil && !fault.Is(err, fault.OutOfCredit) {
		t.Fatal(err)
	}
	if err == nil {
		hold.Release()
	}
	return err == nil
}

func TestCapsAreObeyedEverywhereAtOnce(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	all := []*credit.Allotments{h.gateway(t), h.gateway(t)}
	mine := credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 10 * usd}
	for _, a := range all {
		mustHold(t, a, p, 20*usd).Release() // there is no cap yet, and idle money lies with both
	}
	change := func(what string, fn func(), allowed, refused money.Nano) {
		t.Helper()
		fn()
		for _, a := range all {
			eventually(t, what, func() bool { return spendable(t, a, p, allowed) && !spendable(t, a, p, refused) })
		}
	}
	change("a new cap", func() { mine = h.setCap(t, p.Org, mine) }, 10*usd, 10*usd+1)
	change("a lowered cap", func() { mine.Amount = 4 * usd; h.setCap(t, p.Org, mine) }, 4*usd, 4*usd+1)
	change("a raised cap", func() { mine.Amount = 30 * usd; h.setCap(t, p.Org, mine) }, 30*usd, 30*usd+1)
	change("a second cap", func() {
		h.setCap(t, p.Org, credit.Cap{Scope: credit.ProjectScope, ScopeID: p.Project, Period: period.Week, Amount: 7 * usd})
	}, 7*usd, 7*usd+1)
	change("a removed cap", func() {
		if err := h.desk.RemoveCap(t.Context(), tenants.System(), p.Org, mine.ID); err != nil {
			t.Fatal(err)
		}
	}, 7*usd, 7*usd+1)
	change("a cap of nothing", func() { mine.Amount = 0; h.setCap(t, p.Org, mine) }, 0, 1)
	for _, a := range all {
		eventually(t, "idle money under a fallen cap is back", func() bool {
			return query[int64](h, t, "select outstanding_nano from budgets where scope = 'key' and org_id = $1", p.Org) == 0
		})
		mustHold(t, a, h.key(t, p), 7*usd).Release() // another key has no such cap
	}
	h.check(t, false)
}

// With the bus down a change is found by looking.
func TestCapsAreFoundWithoutNotices(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	a := h.gateway(t, func(c *credit.Config) { c.Bus = deaf{c.Bus} })
	mustHold(t, a, p, 20*usd).Release()
	h.setCap(t, p.Org, credit.Cap{Scope: credit.OrgScope, ScopeID: p.Org, Period: period.Day, Amount: usd})
	eventually(t, "the cap is obeyed", func() bool { return !spendable(t, a, p, usd+1) && spendable(t, a, p, usd) })
}

// A balance that falls (a dispute) is recalled like a lowered cap; what runs goes on.
func TestALoweredCreditLimit(t *testing.T) {
	h := open(t)
	p := h.org(t, 10*usd)
	limit := func(n money.Nano) {
		t.Helper()
		if err := h.desk.SetCreditLimit(t.Context(), tenants.System(), p.Org, n); err != nil {
			t.Fatal(err)
		}
	}
	limit(50 * usd)
	a := h.gateway(t)
	running := mustHold(t, a, p, 40*usd)
	limit(0)
	eventually(t, "nothing new is admitted", func() bool { return !spendable(t, a, p, 1) })
	running.Settle(40 * usd)
	h.rate(t, a.Epoch(), p.Org, running.Budgets(), 40*usd)
	b, err := h.desk.Balance(t.Context(), tenants.System(), p.Org)
	if err != nil || b.Available != -30*usd || b.Settled != 40*usd || b.Outstanding != 0 {
		t.Errorf("%+v, %v", b, err)
	}
	h.check(t, false)
	if err := h.desk.SetCreditLimit(t.Context(), tenants.System(), ids.New(), 1); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := h.desk.SetCreditLimit(t.Context(), tenants.System(), p.Org, -1); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

// Periods begin anew by the clock and the organization's zone, without a job.
func TestPeriodsBeginAnew(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	berlin, err := time.LoadLocation(p.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	now := clock.NewManual(time.Date(2026, 10, 24, 23, 0, 0, 0, berlin)) // tomorrow has 25 hours
	h.desk = credit.NewDesk(h.db, now, h.bus)
	h.setCap(t, p.Org, credit.Cap{Scope: credit.OrgScope, ScopeID: p.Org, Period: period.Day, Amount: 10 * usd})
	a := h.gateway(t, func(c *credit.Config) { c.Clock, c.Validity, c.Heartbeat = now, 100*time.Hour, time.Hour })
	over := mustHold(t, a, p, 10*usd) // over midnight
	yesterday := over.Budgets()
	for _, step := range []struct {
		by    time.Duration
		fresh bool
	}{{time.Hour - time.Second, false}, {time.Second, true}, {25*time.Hour - time.Second, false}, {time.Second, true}, {24*time.Hour - 1, false}} {
		now.Advance(step.by)
		if step.fresh {
			mustHold(t, a, p, 10*usd).Settle(10 * usd)
		}
		mustRefuse(t, a, p, 1, fault.OutOfCredit)
	}
	if err := over.Extend(t.Context(), 1); !fault.Is(err, fault.OutOfCredit) {
		t.Errorf("a hold over midnight stays in its day: %v", err)
	}
	over.Settle(10 * usd)
	h.rate(t, a.Epoch(), p.Org, yesterday, 10*usd)
	if n := query[int64](h, t, "select count(*) from budgets where kind = 'cap'"); n != 3 {
		t.Errorf("%d budgets for three days", n)
	}
	usage, err := h.desk.Caps(t.Context(), tenants.System(), p.Org)
	if err != nil || len(usage) != 1 || usage[0].Outstanding != 10*usd || usage[0].Settled != 0 {
		t.Errorf("%+v, %v", usage, err)
	}
	h.check(t, true)
}

// After a change of time zone the running period has a new row; what was spent in it still counts.
func TestAChangeOfTimeZoneResetsNoCap(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	noon := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	now := clock.NewManual(noon)
	h.desk = credit.NewDesk(h.db, now, h.bus)
	h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: 10 * usd})
	a := h.gateway(t, func(c *credit.Config) { c.Clock, c.Validity, c.Heartbeat = now, 100*time.Hour, time.Hour })
	hold := mustHold(t, a, p, 8*usd)
	budgets := hold.Budgets()
	hold.Settle(8 * usd)
	h.rate(t, a.Epoch(), p.Org, budgets, 8*usd)
	for _, key := range []ids.ID{p.Key, ids.New()} { // another key's spending is not this cap's
		h.exec(t, `insert into usage_rollups values ($1, $2, $3, $4, $5, 1, 0, 0, 0, 0, 0, 0, 0, 0, $6, 0, 0, 0, 0, 0)`,
			p.Org, noon, p.Project, key, ids.New(), int64(8*usd))
	}
	h.exec(t, "update orgs set time_zone = 'Asia/Tokyo' where org_id = $1", p.Org)
	p.TimeZone = "Asia/Tokyo"
	mustRefuse(t, a, p, 2*usd+1, fault.OutOfCredit)
	mustHold(t, a, p, 2*usd).Release()
	if n := query[int64](h, t, "select count(*) from budgets where kind = 'cap'"); n != 2 {
		t.Errorf("%d budgets for two zones", n)
	}
}

// A cap that is set in the middle of a period counts what the period has cost; one that is set again does, too.
func TestANewCapCountsTheRunningPeriod(t *testing.T) {
	h := open(t)
	p := h.org(t, 100*usd)
	spend := func(key ids.ID, bucket time.Time, amount money.Nano) {
		t.Helper()
		h.exec(t, `insert into usage_rollups values ($1, $2, $3, $4, $5, 1, 0, 0, 0, 0, 0, 0, 0, 0, $6, 0, 0, 0, 0, 0)`,
			p.Org, bucket, p.Project, key, ids.New(), int64(amount))
	}
	now := time.Now().UTC().Truncate(15 * time.Minute)
	spend(p.Key, now, 3*usd)
	spend(ids.New(), now, 2*usd)
	spend(p.Key, now.AddDate(0, 0, -40), 50*usd)
	a := h.gateway(t)
	for _, c := range []struct {
		scope credit.Scope
		id    ids.ID
		kind  period.Kind
		left  money.Nano
	}{{credit.KeyScope, p.Key, period.Month, 7 * usd}, {credit.ProjectScope, p.Project, period.Day, 5 * usd}, {credit.OrgScope, p.Org, period.Total, 0}} {
		set := h.setCap(t, p.Org, credit.Cap{Scope: c.scope, ScopeID: c.id, Period: c.kind, Amount: 10 * usd})
		eventually(t, "the cap is obeyed", func() bool { return spendable(t, a, p, c.left) && !spendable(t, a, p, c.left+1) })
		if err := h.desk.RemoveCap(t.Context(), tenants.System(), p.Org, set.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the cap is gone", func() bool { return spendable(t, a, p, 20*usd) })
	}
	spend(p.Key, now.Add(-15*time.Minute), usd) // while there was no cap
	h.setCap(t, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Total, Amount: 60 * usd})
	eventually(t, "the cap is obeyed", func() bool { return spendable(t, a, p, 6*usd) && !spendable(t, a, p, 6*usd+1) })
}

func TestWhoMaySetWhichCaps(t *testing.T) {
	h := open(t)
	p, other := h.org(t, usd), h.org(t, usd)
	good := credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: usd}
	for name, c := range map[string]struct {
		by   tenants.Actor
		org  ids.ID
		cap  credit.Cap
		kind fault.Kind
	}{
		"a developer":       {tenants.Actor{Org: p.Org, Role: tenants.Developer}, p.Org, good, fault.Forbidden},
		"a stranger":        {tenants.Actor{Org: other.Org, Role: tenants.Owner}, p.Org, good, fault.NotFound},
		"another's key":     {tenants.Actor{Org: other.Org, Role: tenants.Owner}, other.Org, good, fault.NotFound},
		"negative":          {tenants.System(), p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: -1}, fault.Invalid},
		"beyond measure":    {tenants.System(), p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: credit.MaxCap + 1}, fault.Invalid},
		"no such period":    {tenants.System(), p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: "year", Amount: 1}, fault.Invalid},
		"no such scope":     {tenants.System(), p.Org, credit.Cap{Scope: "team", ScopeID: p.Key, Period: period.Day, Amount: 1}, fault.NotFound},
		"no such org":       {tenants.System(), ids.New(), good, fault.NotFound},
		"another org's own": {tenants.System(), p.Org, credit.Cap{Scope: credit.OrgScope, ScopeID: other.Org, Period: period.Day, Amount: 1}, fault.NotFound},
	} {
		if _, err := h.desk.SetCap(t.Context(), c.by, c.org, c.cap); !fault.Is(err, c.kind) {
			t.Errorf("%s: want %s, got %v", name, c.kind, err)
		}
	}
	set, err := h.desk.SetCap(t.Context(), tenants.Actor{Org: p.Org, Role: tenants.Billing}, p.Org, good)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.desk.RemoveCap(t.Context(), tenants.Actor{Org: other.Org, Role: tenants.Owner}, other.Org, set.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organization removed a cap: %v", err)
	}
	if n := query[int64](h, t, "select count(*) from audit_log where action = 'cap.set'"); n != 1 {
		t.Errorf("%d entries in the audit log", n)
	}
	if usage, err := h.desk.Caps(t.Context(), tenants.Actor{Org: p.Org, Role: tenants.Viewer}, p.Org); err != nil || len(usage) != 1 || usage[0].Cap != set {
		t.Errorf("%+v, %v", usage, err)
	}
}

// Two who set the same cap for the first time: one cap, and it is one of theirs.
func TestTwoSetTheSameCap(t *testing.T) {
	h := open(t)
	p := h.org(t, usd)
	done := make(chan error, 8)
	for i := range cap(done) {
		go func() {
			_, err := h.desk.SetCap(t.Context(), tenants.System(), p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Day, Amount: money.Nano(i + 1)})
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil && !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
	}
	h.system(t, func(tx pgx.Tx) error {
		var rule, budget int64
		err := tx.QueryRow(t.Context(), "select c.cap_nano, b.cap_nano from caps c join budgets b on b.org_id = c.org_id and b.kind = 'cap'").Scan(&rule, &budget)
		if rule != budget || rule == 0 {
			t.Errorf("the cap is %d, its budget %d", rule, budget)
		}
		return err
	})
}
