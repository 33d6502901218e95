package admin

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// Rows of the form. A version that was made by a program may have more windows: the form then has as many.
const (
	tierRows   = usage.MaxSteps
	windowRows = 4
)

// dayChoices are the sets of days that the form offers; another one that a version has is offered too.
var dayChoices = []string{"", "mon tue wed thu fri", "sat sun"}

func tierField(row int, name string) string   { return "tier" + strconv.Itoa(row) + "_" + name }
func windowField(row int, name string) string { return "window" + strconv.Itoa(row) + "_" + name }

// windowsOf is how many rows of windows the form has.
func windowsOf(f *ui.Form) int {
	n := windowRows
	for f.Values.Has(windowField(n+1, "from")) {
		n++
	}
	return n
}

// termValues fill the form with a version's terms.
func termValues(values map[string][]string, t *ui.PriceTerms) {
	set := func(name, text string) { values[name] = []string{text} }
	for i, s := range t.Steps {
		set(tierField(i+1, "above"), strconv.FormatInt(s.Above, 10))
		for _, c := range ui.PricedClasses {
			set(tierField(i+1, c.String()), inputPrice(s.Prices, c))
		}
	}
	for i, w := range t.Windows {
		set(windowField(i+1, "days"), strings.Join(w.Days, " "))
		set(windowField(i+1, "from"), w.From)
		set(windowField(i+1, "to"), w.To)
		set(windowField(i+1, "percent"), strconv.FormatInt(w.Percent, 10))
	}
	for name, percent := range map[string]int64{"priority_percent": t.Priority, "batch_percent": t.Batch} {
		if percent != 0 {
			set(name, strconv.FormatInt(percent, 10))
		}
	}
}

// readTerms reads the terms of a price form. A class of a tier that is left empty costs what it costs below. What cannot be
// is the domain's to say; here is what cannot be read.
func readTerms(f *ui.Form, base usage.Prices) (t ui.PriceTerms) {
	for row := 1; row <= tierRows; row++ {
		if s, ok := readStep(f, row, base); ok {
			t.Steps = append(t.Steps, s)
			base = s.Prices
		}
	}
	for row := 1; row <= windowsOf(f); row++ {
		from, to := f.Get(windowField(row, "from")), f.Get(windowField(row, "to"))
		if from == "" && to == "" && f.Get(windowField(row, "percent")) == "" {
			continue
		}
		percent := readPercent(f, windowField(row, "percent"))
		if percent == 0 && f.Error(windowField(row, "percent")) == "" {
			f.Fail(windowField(row, "percent"), "Enter the percentage of the window.")
		}
		t.Windows = append(t.Windows, ui.PriceWindow{Days: strings.Fields(f.Get(windowField(row, "days"))), From: from, To: to, Percent: percent})
	}
	t.Priority, t.Batch = readPercent(f, "priority_percent"), readPercent(f, "batch_percent")
	return t
}

func readStep(f *ui.Form, row int, below usage.Prices) (s usage.Step, ok bool) {
	text := f.Get(tierField(row, "above"))
	filled := text != ""
	s.Prices = below
	for _, c := range ui.PricedClasses {
		name := tierField(row, c.String())
		price := f.Get(name)
		if price == "" {
			continue
		}
		filled = true
		v, err := parsePrice(price, c)
		if err != nil || v < 0 || v > maxPrice {
			f.Fail(name, ui.ClassName(c)+": enter dollars like 0.15, with at most six decimals.")
			continue
		}
		s.Prices[c] = v
	}
	if !filled {
		return s, false
	}
	above, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	if err != nil || above <= 0 {
		f.Fail(tierField(row, "above"), "Enter above how many prompt tokens these prices hold, for example 128000.")
	}
	s.Above = above
	return s, true
}

// readPercent reads a whole percentage; empty is 0.
func readPercent(f *ui.Form, name string) int64 {
	text := strings.TrimSuffix(f.Get(name), "%")
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 {
		f.Fail(name, "Enter a whole percentage like 50.")
		return 0
	}
	return n
}

func dayOptions(f *ui.Form, row int) []ui.Option {
	choices := dayChoices
	if own := f.Get(windowField(row, "days")); !slices.Contains(choices, own) {
		choices = append(slices.Clone(choices), own)
	}
	out := make([]ui.Option, len(choices))
	for i, c := range choices {
		out[i] = ui.Option{Value: c, Text: ui.DayText(strings.Fields(c))}
	}
	return out
}

// filled reports whether any field of a row has something, right or wrong: it is then shown open.
func filled(f *ui.Form, row string) bool {
	for name := range f.Values {
		if strings.HasPrefix(name, row) && f.Get(name) != "" {
			return true
		}
	}
	return slices.ContainsFunc(f.Errors, func(e ui.FieldError) bool { return strings.HasPrefix(e.Field, row) })
}

// pricesAt gives a version's prices just above a prompt length.
func pricesAt(base usage.Prices, t *ui.PriceTerms, above int64) usage.Prices {
	for _, s := range t.Steps {
		if s.Above <= above {
			base = s.Prices
		}
	}
	return base
}

// lengthsOf are the prompt lengths above which either version's prices change: 0, and every step.
func lengthsOf(lists ...ui.PriceTerms) []int64 {
	out := []int64{0}
	for _, t := range lists {
		for _, s := range t.Steps {
			out = append(out, s.Above)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// previewGrid is what the newest traffic would have cost, by customer.
func previewGrid(p PricePreview) ui.Grid {
	g := ui.Grid{Caption: "What the newest traffic would have cost", Cards: true,
		Columns: []ui.Column{{Name: "Customer"}, {Name: "Requests", Num: true}, {Name: "Before", Num: true}, {Name: "After", Num: true}, {Name: "Difference", Num: true}},
		Empty:   ui.Blank{Icon: "chart-column", Title: "No traffic", Text: "Nobody whom this price would reach has called the model in the last 30 days."}}
	line := func(name ui.Cell, l PreviewLine) ui.Row {
		return ui.Row{name, ui.C(l.Requests), ui.USD(l.Before), ui.USD(l.After), moved(l.Before, l.After)}
	}
	for _, l := range p.Customers {
		g.Rows = append(g.Rows, line(ui.L(customerPath(l.Org), l.Name), l))
	}
	if p.Others.Customers > 0 {
		g.Rows = append(g.Rows, line(ui.T(ui.Plural(int64(p.Others.Customers), "further customer", "further customers")), p.Others))
	}
	if len(g.Rows) > 0 {
		g.Foot = line(ui.T("All"), p.Total)
	}
	return g
}

func moved(before, after money.Nano) ui.Cell {
	c := ui.USD(after - before)
	if before > 0 {
		change, _ := changeText(money.Pico(before), money.Pico(after), true)
		c = c.WithSub(change)
	}
	return c
}

// carried are the fields that the preview sends on.
func carried(f *ui.Form) (out []struct{ name, value string }) {
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		if name != "step" && name != "confirm" {
			out = append(out, struct{ name, value string }{name, f.Get(name)})
		}
	}
	return out
}

func tierTitle(f *ui.Form, row int) string {
	if above := f.Get(tierField(row, "above")); above != "" {
		return "Tier " + strconv.Itoa(row) + ": prompts above " + above + " tokens"
	}
	return "Tier " + strconv.Itoa(row) + map[bool]string{true: "", false: ": none"}[filled(f, tierField(row, ""))]
}

func windowTitle(f *ui.Form, row int) string {
	get := func(name string) string { return f.Get(windowField(row, name)) }
	if get("from") == "" || get("to") == "" || get("percent") == "" {
		return "Window " + strconv.Itoa(row) + map[bool]string{true: "", false: ": none"}[filled(f, windowField(row, ""))]
	}
	return "Window " + strconv.Itoa(row) + ": " + ui.DayText(strings.Fields(get("days"))) + " " + get("from") + "–" + get("to") + " UTC, " + get("percent") + " %"
}

// spanText is how long the traffic of a preview is: "30 days", "5 hours".
func (p PricePreview) spanText() string {
	if days := int64(p.To.Sub(p.From) / (24 * time.Hour)); days > 0 {
		return ui.Plural(days, "day", "days")
	}
	return ui.Plural(int64((p.To.Sub(p.From)+time.Hour-1)/time.Hour), "hour", "hours")
}

// note says what the preview stands for.
func (p PricePreview) note() string {
	text := "What the tokens of the customers on this price cost, before credit and caps."
	if p.Shortened {
		text += " There was too much traffic to price 30 days anew."
	}
	if p.Cost != nil {
		text += " Serving the model cost " + ui.FormatMoney(*p.Cost) + " over this time."
	}
	return text
}

// sentence begins with a capital letter.
func sentence(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:]
}
