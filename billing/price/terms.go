package price

import (
	"fmt"
	"slices"
	"time"

	"millrace/internal/fault"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Limits of terms.
const (
	maxWindows = 14 // one by day and one by night, every day of the week
	// Percent of a price. A free window or tier is a version of zeros, said on purpose.
	minPercent  = 1
	maxPercent  = 1000
	whole       = 100 // per cent: unchanged
	minuteOfDay = 24 * 60
	week        = 7 * minuteOfDay
)

// Terms is what a version says beside its eight prices. The zero Terms say nothing.
type Terms struct {
	// Tiers are steps by the prompt's length, ascending by Above. The whole request is priced at the step it falls in.
	Tiers []Tier
	// Windows are times of the week, in UTC, at which every price is a percentage of itself. They do not overlap; outside
	// of them the percentage is 100. The request's start decides.
	Windows []Window
	// Percentages of every price at a service tier. 0 = the tier is not offered.
	Batch    int64
	Priority int64
}

// Tier is the prices of a request whose prompt is longer than Above tokens of all kinds.
type Tier struct {
	Above  int64
	Prices usage.Prices
}

// Window is a span of some days of the week, in minutes from midnight UTC: [From, To), To at most 24:00.
type Window struct {
	Days     Days
	From, To int
	Percent  int64
}

// Days is a set of days of the week; bit n is time.Weekday n. 0 = every day.
type Days uint8

// Has reports whether the day is in the set.
func (d Days) Has(day time.Weekday) bool { return d == 0 || d>>day&1 != 0 }

// Empty reports whether the terms say nothing.
func (t *Terms) Empty() bool {
	return len(t.Tiers) == 0 && len(t.Windows) == 0 && t.Batch == 0 && t.Priority == 0
}

// Equal reports whether both say the same.
func (t *Terms) Equal(o *Terms) bool {
	return t.Batch == o.Batch && t.Priority == o.Priority && slices.Equal(t.Tiers, o.Tiers) && slices.Equal(t.Windows, o.Windows)
}

// holds reports whether the window is open at a moment.
func (w *Window) holds(at time.Time) bool {
	at = at.UTC()
	minute := at.Hour()*60 + at.Minute()
	return w.From <= minute && minute < w.To && w.Days.Has(at.Weekday())
}

// percentAt is the percentage by the time of day.
func (t *Terms) percentAt(at time.Time) int64 {
	for i := range t.Windows {
		if t.Windows[i].holds(at) {
			return t.Windows[i].Percent
		}
	}
	return whole
}

// percentOf is the percentage of a service tier, ok=false when it is not offered.
func (t *Terms) percentOf(s usage.Service) (percent int64, ok bool) {
	switch s {
	case usage.Ordinary:
		return whole, true
	case usage.Batch:
		percent = t.Batch
	case usage.Priority:
		percent = t.Priority
	}
	return percent, percent != 0
}

// check refuses terms that cannot be, or whose dearest price is above what a price may be.
func (t *Terms) check(base usage.Prices) error {
	if len(t.Tiers) > usage.MaxSteps {
		return fault.New(fault.Invalid, "There may be at most %d tiers by prompt length.", usage.MaxSteps).WithParam("tiers")
	}
	above := int64(0)
	for _, tier := range t.Tiers {
		if tier.Above <= above || tier.Above >= usage.MaxTokens {
			return fault.New(fault.Invalid, "Tiers begin above growing numbers of prompt tokens, from 1 to %d.", usage.MaxTokens-1).WithParam("tiers")
		}
		above = tier.Above
	}
	for name, percent := range map[string]int64{"batch_percent": t.Batch, "priority_percent": t.Priority} {
		if percent != 0 && (percent < minPercent || percent > maxPercent) {
			return fault.New(fault.Invalid, "A percentage lies between %d and %d.", minPercent, maxPercent).WithParam(name)
		}
	}
	if err := t.checkWindows(); err != nil {
		return err
	}
	return t.checkDearest(base)
}

func (t *Terms) checkWindows() error {
	if len(t.Windows) > maxWindows {
		return fault.New(fault.Invalid, "There may be at most %d windows.", maxWindows).WithParam("windows")
	}
	var taken [week]bool // by minute: windows may not overlap
	for _, w := range t.Windows {
		switch {
		case w.From < 0 || w.To > minuteOfDay || w.From >= w.To:
			return fault.New(fault.Invalid, "A window ends after it begins, on the same day: make two of one that goes past midnight UTC.").WithParam("windows")
		case w.Days >= 1<<7:
			return fault.New(fault.Invalid, "A window names days of the week.").WithParam("windows")
		case w.Percent < minPercent || w.Percent > maxPercent:
			return fault.New(fault.Invalid, "A window's percentage lies between %d and %d.", minPercent, maxPercent).WithParam("windows")
		}
		for day := time.Sunday; day <= time.Saturday; day++ {
			if !w.Days.Has(day) {
				continue
			}
			for minute := w.From; minute < w.To; minute++ {
				at := int(day)*minuteOfDay + minute
				if taken[at] {
					return fault.New(fault.Invalid, "Two windows overlap.").WithParam("windows")
				}
				taken[at] = true
			}
		}
	}
	return nil
}

// checkDearest keeps the dearest price, with every percentage worked in, inside of what a price may be.
func (t *Terms) checkDearest(base usage.Prices) error {
	high := max(whole, t.Batch, t.Priority)
	window := int64(whole)
	for _, w := range t.Windows {
		window = max(window, w.Percent)
	}
	lists := []usage.Prices{base}
	for _, tier := range t.Tiers {
		lists = append(lists, tier.Prices)
	}
	for _, list := range lists {
		for c, p := range list {
			class := usage.Class(c)
			if limit := highest(class); p < 0 || p > limit || money.Percent(p, window*high, whole*whole) > limit {
				return fault.New(fault.Invalid, "The price of %s must lie between 0 and %s, percentages included.", class, text(class, limit)).WithParam(class.String())
			}
		}
	}
	return nil
}

// Quote is what a request pins that starts at a moment and asks for a service tier. ok=false: the version does not offer
// the tier, and the quote is of the ordinary one. It allocates nothing.
func (v *Version) Quote(at time.Time, s usage.Service) (q usage.Quote, ok bool) {
	percent, ok := v.Terms.percentOf(s)
	if !ok {
		s, percent = usage.Ordinary, whole
	}
	q = v.quote(s, v.Terms.percentAt(at)*percent)
	return q, ok
}

// PricesOf gives the prices that an event is charged by under the version: its time, tier and prompt length worked in.
func (v *Version) PricesOf(e *usage.Event) usage.Prices {
	q, _ := v.Quote(time.UnixMilli(e.StartedMS), e.Service)
	return *q.For(e.Usage.Prompt())
}

// PricesIn gives the prices of a window (counted from 1; 0 = none), a service tier and a step of the prompt's length (how many
// thresholds it is above): what PricesOf gives for every event of that kind.
func (v *Version) PricesIn(window int, s usage.Service, step int) usage.Prices {
	share := int64(whole)
	if window > 0 {
		share = v.Terms.Windows[window-1].Percent
	}
	percent, offered := v.Terms.percentOf(s)
	if !offered {
		s, percent = usage.Ordinary, whole
	}
	q := v.quote(s, share*percent)
	if step > 0 {
		return q.Steps[step-1].Prices
	}
	return q.Prices
}

// Thresholds gives the tiers' lengths, ascending.
func (t *Terms) Thresholds() []int64 {
	above := make([]int64, len(t.Tiers))
	for i, tier := range t.Tiers {
		above[i] = tier.Above
	}
	return above
}

// WindowMinutes gives the windows by day, in minutes of the week from Sunday's midnight UTC, each with its number from 1.
func (t *Terms) WindowMinutes() (numbers, from, to []int32) {
	numbers, from, to = []int32{}, []int32{}, []int32{}
	for i, w := range t.Windows {
		for day := time.Sunday; day <= time.Saturday; day++ {
			if w.Days.Has(day) {
				numbers = append(numbers, int32(i+1))
				from = append(from, int32(int(day)*minuteOfDay+w.From))
				to = append(to, int32(int(day)*minuteOfDay+w.To))
			}
		}
	}
	return numbers, from, to
}

// quote works a share of 10,000 into every price.
func (v *Version) quote(s usage.Service, share int64) usage.Quote {
	q := usage.Quote{Version: v.ID, Service: s, Prices: v.Prices}
	for i, tier := range v.Terms.Tiers {
		q.Steps[i] = usage.Step(tier)
	}
	if share == whole*whole {
		return q
	}
	scale(&q.Prices, share)
	for i := range v.Terms.Tiers {
		scale(&q.Steps[i].Prices, share)
	}
	return q
}

func scale(p *usage.Prices, share int64) {
	for c := range p {
		p[c] = money.Percent(p[c], share, whole*whole)
	}
}

// String writes the window as people read it: "Mon Tue 22:00–24:00 UTC".
func (w Window) String() string {
	return fmt.Sprintf("%s %s–%s UTC", w.Days, Clock(w.From), Clock(w.To))
}

// String names the days: "Mon Tue"; all of them are "every day".
func (d Days) String() string {
	text := ""
	for i := range 7 { // weeks begin on Monday
		day := time.Weekday((i + 1) % 7)
		if !d.Has(day) {
			continue
		}
		if text != "" {
			text += " "
		}
		text += day.String()[:3]
	}
	if d == 0 || d == 1<<7-1 {
		return "every day"
	}
	return text
}

// Clock writes minutes from midnight as a time of day: "06:30", "24:00".
func Clock(minute int) string { return fmt.Sprintf("%02d:%02d", minute/60, minute%60) }
