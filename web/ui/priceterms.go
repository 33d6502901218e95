package ui

import (
	"strings"

	"millrace/internal/usage"
)

// PriceTerms is how prices depend on the prompt's length, the time of the week and the service tier.
type PriceTerms struct {
	Steps    []usage.Step // ascending
	Windows  []PriceWindow
	Batch    int64 // per cent of the prices; 0 = not offered
	Priority int64
}

// PriceWindow is a span of some days of the week, in UTC, at a percentage of the prices.
type PriceWindow struct {
	Days     []string // "mon" to "sun"; none = every day
	From, To string   // "HH:MM", To up to "24:00"
	Percent  int64
}

// Empty reports whether there is nothing to say.
func (t *PriceTerms) Empty() bool {
	return len(t.Steps) == 0 && len(t.Windows) == 0 && t.Batch == 0 && t.Priority == 0
}

// DayText names days for reading: "Mon Tue", "every day".
func DayText(days []string) string {
	switch strings.Join(days, " ") {
	case "", "mon tue wed thu fri sat sun":
		return "every day"
	case "mon tue wed thu fri":
		return "Mon–Fri"
	case "sat sun":
		return "Sat and Sun"
	}
	names := make([]string, len(days))
	for i, d := range days {
		names[i] = strings.ToUpper(d[:1]) + d[1:]
	}
	return strings.Join(names, " ")
}

// Lines says windows and service tiers in sentences; steps are rows of a price table.
func (t *PriceTerms) Lines() (lines []string) {
	for _, w := range t.Windows {
		lines = append(lines, DayText(w.Days)+" "+w.From+"–"+w.To+" UTC: "+FormatCount(w.Percent)+" % of these prices, for requests that start then")
	}
	if t.Priority != 0 {
		lines = append(lines, "service_tier priority, served before others: "+FormatCount(t.Priority)+" %")
	}
	if t.Batch != 0 {
		lines = append(lines, "service_tier flex, served when there is room: "+FormatCount(t.Batch)+" %")
	}
	return lines
}

// Above says which prompts a step is for.
func Above(tokens int64) string { return "prompts above " + FormatCount(tokens) + " tokens" }

// UnitPrice is a price per 1M tokens, or per request for the request class.
func UnitPrice(p usage.Prices, c usage.Class) Cell {
	if c == usage.Requests {
		return T(ExactPico(p[c]))
	}
	return PerM(p[c])
}

// PriceRow appends a price for every class to a table's row.
func PriceRow(row Row, p usage.Prices, classes []usage.Class) Row {
	for _, c := range classes {
		row = append(row, UnitPrice(p, c))
	}
	return row
}

// ClassesWithPrices are the classes that any of the lists has a price for, in reading order; input, cached input and output
// always.
func ClassesWithPrices(lists ...usage.Prices) (out []usage.Class) {
	for _, c := range PricedClasses {
		use := c == usage.Input || c == usage.Cached || c == usage.Output
		for _, p := range lists {
			use = use || p[c] != 0
		}
		if use {
			out = append(out, c)
		}
	}
	return out
}
