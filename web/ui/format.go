package ui

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"millrace/internal/money"
)

// minus is the typographic minus sign that money and differences are shown with.
const minus = "−"

// FormatMoney shows an amount for reading: two decimals from one dollar, four below, −$ for negative amounts. An
// amount that would round to nothing is shown as "<$0.0001". The exact figure is ExactMoney.
func FormatMoney(n money.Nano) string {
	sign, v := "", uint64(n)
	if n < 0 {
		sign, v = minus, -v
	}
	const perCent, perTenthMilli = uint64(money.NanoPerUSD) / 100, uint64(money.NanoPerUSD) / 10_000
	switch {
	case v == 0:
		return "$0.00"
	case v < perTenthMilli/2:
		return sign + "<$0.0001"
	case v < uint64(money.NanoPerUSD)-perTenthMilli/2:
		return fmt.Sprintf("%s$0.%04d", sign, (v+perTenthMilli/2)/perTenthMilli)
	}
	cents := (v + perCent/2) / perCent
	return fmt.Sprintf("%s$%s.%02d", sign, group(cents/100), cents%100)
}

// ExactMoney is the amount with every decimal that is not zero, at least two.
func ExactMoney(n money.Nano) string { return exactDollars(n.String()) }

// ExactPico is an exact cost in pico-USD as dollars with every decimal that is not zero, at least two.
func ExactPico(p money.Pico) string {
	const scale = 12
	sign, v := "", uint64(p)
	if p < 0 {
		sign, v = "-", -v
	}
	s := fmt.Sprintf("%0*d", scale+1, v)
	return exactDollars(sign + s[:len(s)-scale] + "." + strings.TrimRight(s[len(s)-scale:], "0"))
}

func exactDollars(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = minus, s[1:]
	}
	whole, frac, _ := strings.Cut(s, ".")
	for len(frac) < 2 {
		frac += "0"
	}
	v, err := strconv.ParseUint(whole, 10, 64)
	if err != nil {
		return sign + "$" + s // whole is digits by construction
	}
	return sign + "$" + group(v) + "." + frac
}

// FormatPerMillion shows a unit price as dollars per one million tokens.
func FormatPerMillion(p money.Pico) string { return exactDollars(p.PerMillion()) }

// FormatCount shows a whole number with thousands separators.
func FormatCount(n int64) string {
	if n < 0 {
		return minus + group(-uint64(n))
	}
	return group(uint64(n))
}

// Plural is a count with its noun: "1 host is", "3 hosts are".
func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return FormatCount(n) + " " + many
}

// FormatTokens shows a count with three significant figures: 948, 12.4k, 1.24M, 3.10B.
func FormatTokens(n int64) string {
	if n < 0 {
		return minus + FormatTokens(-n)
	}
	for _, u := range []struct {
		size int64
		name string
	}{{1e9, "B"}, {1e6, "M"}, {1e3, "k"}} {
		// 999,500 is 1.00M, not 1000k: a unit starts where the smaller one would need four figures.
		if n >= u.size-u.size/2000 {
			return significant(n, u.size) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// significant writes n/unit with three significant figures, rounded half up.
func significant(n, unit int64) string {
	for decimals, scale := 2, int64(100); decimals > 0; decimals, scale = decimals-1, scale/10 {
		v := (n + unit/scale/2) / (unit / scale)
		if v < 1000 {
			return fmt.Sprintf("%d.%0*d", v/scale, decimals, v%scale)
		}
	}
	return group(uint64((n + unit/2) / unit))
}

func group(v uint64) string {
	s := strconv.FormatUint(v, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Percent is part of whole in whole per cent, rounded down so that 100 means all of it; at most 999, and 0 when whole
// is not positive.
func Percent(part, whole int64) int {
	if whole <= 0 || part <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(part), 100)
	if hi >= uint64(whole) {
		return 999
	}
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int(min(q, 999))
}

// FormatShare shows part of whole with one decimal below 10 %: "0.4 %", "41 %"; "–" when whole is 0.
func FormatShare(part, whole int64) string {
	if whole <= 0 {
		return "–"
	}
	if part <= 0 {
		return "0\u00a0%"
	}
	p := float64(part) / float64(whole) * 100
	switch {
	case p < 0.01:
		return "<0.01\u00a0%"
	case p < 1:
		return fmt.Sprintf("%.2f\u00a0%%", p)
	case p < 10:
		return fmt.Sprintf("%.1f\u00a0%%", p)
	}
	return fmt.Sprintf("%.0f\u00a0%%", p)
}

// FormatLatency shows a duration as a person compares latencies: 212 ms, 1.4 s; "–" for none.
func FormatLatency(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d min", int(d.Minutes()+.5))
}

// FormatAge says how long before now t was: "now", "3 min ago", "yesterday", "92 days ago"; the date after 400 days.
func FormatAge(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "never"
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	case d < 48*time.Hour:
		return "yesterday"
	case d < 400*24*time.Hour:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
	return t.Format("2 Jan 2006")
}

// ZoneName says a zone as people read it: "Europe/Berlin (UTC+1)" at the given moment, or "UTC".
func ZoneName(z *time.Location, at time.Time) string {
	if z == nil || z == time.UTC || z.String() == "UTC" {
		return "UTC"
	}
	_, off := at.In(z).Zone()
	sign, a := "+", off
	if off < 0 {
		sign, a = minus, -off
	}
	s := fmt.Sprintf("%s (UTC%s%d", z, sign, a/3600)
	if m := a % 3600 / 60; m != 0 {
		s += fmt.Sprintf(":%02d", m)
	}
	return s + ")"
}
