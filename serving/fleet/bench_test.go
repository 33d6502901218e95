package fleet_test

import (
	"fmt"
	"log/slog"
	"testing"
)

// A look at 1,000 hosts of 8 GPUs that run 500 units, when nothing is to be done, and the page of the same fleet.
func BenchmarkAThousandHosts(b *testing.B) {
	slog.SetLogLoggerLevel(slog.LevelError)
	defer slog.SetLogLoggerLevel(slog.LevelInfo)
	f := newBed(b)
	f.model("m")
	f.demand("m", f.recipe(simWhole), 500)
	for i := range 1000 {
		f.host(fmt.Sprintf("h%04d", i), 8)
	}
	e := f.executor()
	f.planned()
	for range 12 {
		for _, a := range f.hosts {
			f.report(a)
		}
		if _, err := e.Pass(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if got := f.serving(); got != 500 {
		b.Fatalf("%d serve", got)
	}
	b.Run("pass", func(b *testing.B) {
		for b.Loop() {
			if _, err := e.Pass(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("overview", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.svc.Overview(b.Context(), operator); err != nil {
				b.Fatal(err)
			}
		}
	})
}
