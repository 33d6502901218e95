package ui

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/money"
)

func TestFormatMoney(t *testing.T) {
	for _, c := range []struct{ dollars, shown, exact string }{
		{"0", "$0.00", "$0.00"},
		{"0.000000001", "<$0.0001", "$0.000000001"},
		{"0.00005", "$0.0001", "$0.00005"},
		{"0.0032184", "$0.0032", "$0.0032184"},
		{"0.99994", "$0.9999", "$0.99994"},
		{"0.99995", "$1.00", "$0.99995"},
		{"1.005", "$1.01", "$1.005"},
		{"182.4", "$182.40", "$182.40"},
		{"1234567.891", "$1,234,567.89", "$1,234,567.891"},
		{"-12.06", "−$12.06", "−$12.06"},
		{"-0.000000001", "−<$0.0001", "−$0.000000001"},
	} {
		n, err := money.ParseUSD(c.dollars)
		if err != nil {
			t.Fatal(err)
		}
		if got := FormatMoney(n); got != c.shown {
			t.Errorf("FormatMoney(%s) = %s, want %s", c.dollars, got, c.shown)
		}
		if got := ExactMoney(n); got != c.exact {
			t.Errorf("ExactMoney(%s) = %s, want %s", c.dollars, got, c.exact)
		}
	}
}

func TestExactAmountsLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := money.Nano(rapid.Int64Range(-1<<62, 1<<62).Draw(t, "nano"))
		plain := strings.NewReplacer("$", "", ",", "", "−", "-").Replace(ExactMoney(n))
		if back, err := money.ParseUSD(plain); err != nil || back != n {
			t.Fatalf("%d shows as %q, which is %d (%v)", n, plain, back, err)
		}
		if pico := ExactPico(money.Pico(n)); n%1000 == 0 && pico != ExactMoney(n/1000) {
			t.Fatalf("%d pico shows as %s, but %d nano as %s", n, pico, n/1000, ExactMoney(n/1000))
		}
	})
	if got := ExactPico(1); got != "$0.000000000001" {
		t.Errorf("one pico-dollar shows as %s", got)
	}
	if got := ExactPico(1_423_400_000); got != "$0.0014234" {
		t.Errorf("ExactPico = %s", got)
	}
}

func TestFormatTokens(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 948: "948", 999: "999", 1000: "1.00k", 12_400: "12.4k", 999_499: "999k", 999_500: "1.00M", 1_240_000: "1.24M", 3_100_000_000: "3.10B", 12_345_000_000_000: "12,345B", -1_240_000: "−1.24M"} {
		if got := FormatTokens(n); got != want {
			t.Errorf("FormatTokens(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestPercentIsAllOnlyWhenAllIsUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part, whole := rapid.Int64Range(0, 1<<62).Draw(t, "part"), rapid.Int64Range(1, 1<<62).Draw(t, "whole")
		if p := Percent(part, whole); p >= 100 != (part >= whole) || p < 0 || p > 999 {
			t.Fatalf("%d of %d is %d %%", part, whole, p)
		}
	})
	if Percent(5, 0) != 0 || Percent(-5, 10) != 0 {
		t.Error("no share of nothing")
	}
}

func TestFormatTimes(t *testing.T) {
	now := time.Date(2026, 11, 30, 13, 40, 0, 0, time.UTC)
	for age, want := range map[time.Duration]string{20 * time.Second: "now", 3 * time.Minute: "3 min ago", 5 * time.Hour: "5 h ago", 30 * time.Hour: "yesterday", 92 * 24 * time.Hour: "92 days ago", 500 * 24 * time.Hour: "18 Jul 2025"} {
		if got := FormatAge(now.Add(-age), now); got != want {
			t.Errorf("%s ago reads %q, want %q", age, got, want)
		}
	}
	if got := FormatAge(time.Time{}, now); got != "never" {
		t.Errorf("no time reads %q", got)
	}
	for zone, want := range map[string]string{"UTC": "UTC", "Europe/Berlin": "Europe/Berlin (UTC+1)", "Asia/Kolkata": "Asia/Kolkata (UTC+5:30)", "America/St_Johns": "America/St_Johns (UTC−3:30)"} {
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := ZoneName(z, now); got != want {
			t.Errorf("zone reads %q, want %q", got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "–", 212 * time.Millisecond: "212 ms", 1400 * time.Millisecond: "1.4 s", 5 * time.Minute: "5 min"} {
		if got := FormatLatency(d); got != want {
			t.Errorf("%s reads %q, want %q", d, got, want)
		}
	}
}
