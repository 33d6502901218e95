package credit_test

import (
	"testing"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/db/dbtest"
)

// A hold and its settlement from memory, from three budgets: what every request pays.
func BenchmarkHoldSettle(b *testing.B) {
	h := &house{db: dbtest.New(b), bus: dbtest.Bus(b), locks: b.TempDir()}
	h.desk = newDesk(h)
	p := h.org(b, 100_000_000*usd)
	h.setCap(b, p.Org, credit.Cap{Scope: credit.KeyScope, ScopeID: p.Key, Period: period.Month, Amount: credit.MaxCap})
	h.setCap(b, p.Org, credit.Cap{Scope: credit.ProjectScope, ScopeID: p.Project, Period: period.Day, Amount: credit.MaxCap})
	a, err := credit.Open(b.Context(), credit.Config{DB: h.db, Bus: h.bus, Process: "bench", LockDir: h.locks})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Crash()
	b.ReportAllocs()
	for b.Loop() {
		hold, err := a.Hold(b.Context(), p, 1000)
		if err != nil {
			b.Fatal(err)
		}
		hold.Settle(10)
	}
	b.ReportMetric(float64(a.Stats().Raises)/b.Elapsed().Seconds(), "raises/s")
}
