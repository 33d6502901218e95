package rate_test

import (
	"testing"

	"millrace/billing/rate"
	"millrace/db"
	"millrace/db/dbtest"
)

// BenchmarkRate is the rater's speed with PostgreSQL and NATS on this machine. -benchtime 200000x gives steady numbers.
func BenchmarkRate(b *testing.B) {
	// Not dbtest.New: its template was analyzed while it was empty, which no database in service ever is.
	d, err := db.Open(b.Context(), dbtest.Empty(b), db.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if err := d.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	r, err := rate.Bench(b.Context(), rate.BenchConfig{DB: d, Bus: dbtest.Bus(b), Events: b.N})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(r.PerSecond), "events/s")
	b.ReportMetric(float64(r.CPUPerEvent.Nanoseconds())/1000, "cpu-us/event")
	b.Log(r)
}
