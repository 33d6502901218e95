package period_test

import (
	"testing"
	"time"

	"millrace/billing/period"
	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := period.Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestStartsOfPeriods(t *testing.T) {
	for _, c := range []struct {
		name, zone, at string
		kind           period.Kind
		start, end     string // UTC
	}{
		{"a day in UTC", "UTC", "2026-03-05T13:00:00Z", period.Day, "2026-03-05T00:00:00Z", "2026-03-06T00:00:00Z"},
		{"India is half an hour off", "Asia/Kolkata", "2026-03-05T19:00:00Z", period.Day, "2026-03-05T18:30:00Z", "2026-03-06T18:30:00Z"},
		{"the short day in Berlin", "Europe/Berlin", "2026-03-29T10:00:00Z", period.Day, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"the long day in Berlin", "Europe/Berlin", "2026-10-25T10:00:00Z", period.Day, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"a month across daylight saving", "America/New_York", "2026-03-20T00:00:00Z", period.Month, "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"},
		{"December ends in January", "Pacific/Auckland", "2026-12-31T00:00:00Z", period.Month, "2026-11-30T11:00:00Z", "2026-12-31T11:00:00Z"},
		{"a Sunday belongs to the week before", "UTC", "2026-11-29T23:59:59Z", period.Week, "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"a Monday begins one", "UTC", "2026-11-30T00:00:00Z", period.Week, "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"},
		{"a week over New Year", "UTC", "2027-01-01T12:00:00Z", period.Week, "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"},
		{"midnight does not exist in Beirut", "Asia/Beirut", "2024-03-31T12:00:00Z", period.Day, "2024-03-30T22:00:00Z", "2024-03-31T21:00:00Z"},
		{"midnight comes twice in Havana", "America/Havana", "2024-11-03T15:00:00Z", period.Day, "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"},
		{"clocks go back at midnight in Asunción", "America/Asuncion", "2024-03-24T12:00:00Z", period.Day, "2024-03-24T04:00:00Z", "2024-03-25T04:00:00Z"},
		{"Samoa skipped a day", "Pacific/Apia", "2011-12-29T20:00:00Z", period.Day, "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		span := period.At(c.kind, zone(t, c.zone), at)
		if got := span.Start.Format(time.RFC3339); got != c.start {
			t.Errorf("%s: starts %s, want %s", c.name, got, c.start)
		}
		if got := span.End.Format(time.RFC3339); got != c.end {
			t.Errorf("%s: ends %s, want %s", c.name, got, c.end)
		}
	}
	if total := period.At(period.Total, time.UTC, time.Now()); total.Start != period.TotalStart || !total.End.IsZero() || !total.Contains(time.Now()) {
		t.Errorf("total is %v", total)
	}
}

// Whatever the zone and moment: the moment is in its period, the next one begins where it ends, and every moment of it
// finds the same start.
func TestPeriodsTile(t *testing.T) {
	names := []string{"UTC", "Europe/London", "America/Sao_Paulo", "America/Santiago", "Asia/Tehran", "Asia/Kathmandu",
		"Australia/Lord_Howe", "Pacific/Chatham", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Africa/Casablanca", "Asia/Gaza"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "zone")
		z, err := period.Zone(name)
		if err != nil {
			t.Fatal(err)
		}
		kind := rapid.SampledFrom([]period.Kind{period.Day, period.Week, period.Month}).Draw(t, "kind")
		at := time.Unix(rapid.Int64Range(1_000_000_000, 2_000_000_000).Draw(t, "at"), 0)
		span := period.At(kind, z, at)
		if !span.Contains(at) {
			t.Fatalf("%v is not in %v", at.UTC(), span)
		}
		length := int64(span.End.Sub(span.Start) / time.Second)
		inside := span.Start.Add(time.Duration(rapid.Int64Range(0, length-1).Draw(t, "inside")) * time.Second)
		if other := period.At(kind, z, inside); other != span {
			t.Fatalf("%v is in %v, though it lies in %v", inside, other, span)
		}
		if next := period.At(kind, z, span.End); next.Start != span.End {
			t.Fatalf("after %v comes %v", span, next)
		}
	})
}

func TestOnlyNamedZones(t *testing.T) {
	for _, name := range []string{"", "Local", "Mars/Olympus", "../../etc/passwd"} {
		if z, err := period.Zone(name); err == nil {
			t.Errorf("%q gave %v", name, z)
		}
	}
}
