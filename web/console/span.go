package console

import (
	"time"

	"millrace/web/ui"
)

// span is a report's half-open range of whole days in a zone, and the step of its buckets.
type span struct {
	from, to time.Time
	step     Step
	preset   string // "today", "7d", "30d", "month" or "" for a range of one's own
}

const (
	maxSpanDays  = 366 // of one report
	hourlyUpTo   = 2   // days that are cut into hours
	dateLayout   = "2006-01-02"
	defaultRange = "30d"
)

// spanOf reads the range from the address; bad values fall back to the last 30 days. now is in the viewer's zone.
func spanOf(get func(string) string, now time.Time) span {
	midnight := func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, t.Location()) }
	today := midnight(now)
	tomorrow := today.AddDate(0, 0, 1)
	s := span{to: tomorrow, step: StepDay, preset: get("range")}
	from, errFrom := time.ParseInLocation(dateLayout, get("from"), now.Location())
	to, errTo := time.ParseInLocation(dateLayout, get("to"), now.Location())
	if errFrom == nil && errTo == nil && !to.Before(from) && days(from, to) < maxSpanDays {
		s.from, s.to, s.preset = from, to.AddDate(0, 0, 1), ""
	} else {
		switch s.preset {
		case "today":
			s.from = today
		case "7d":
			s.from = today.AddDate(0, 0, -6)
		case "month":
			s.from = today.AddDate(0, 0, 1-today.Day())
		default:
			s.from, s.preset = today.AddDate(0, 0, -29), defaultRange
		}
	}
	if days(s.from, s.to) <= hourlyUpTo {
		s.step = StepHour
	}
	return s
}

// days counts calendar days; a day with a clock change still is one.
func days(from, to time.Time) int {
	const half = 12 * time.Hour
	return int((to.Sub(from) + half) / (24 * time.Hour))
}

// starts are the beginnings of the buckets.
func (s span) starts() []time.Time {
	var out []time.Time
	for t := s.from; t.Before(s.to); t = s.next(t) {
		out = append(out, t)
	}
	return out
}

func (s span) next(t time.Time) time.Time {
	if s.step == StepHour {
		return t.Add(time.Hour)
	}
	return time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, t.Location())
}

func (s span) name(t time.Time) string {
	if s.step == StepHour {
		if days(s.from, s.to) > 1 {
			return t.Format("2 Jan 15:04")
		}
		return t.Format("15:04")
	}
	return t.Format("2 Jan")
}

// last is the last day inside the span.
func (s span) last() time.Time { return s.to.AddDate(0, 0, -1) }

// title says the range in words.
func (s span) title() string {
	if days(s.from, s.to) == 1 {
		return s.from.Format("2 January 2006")
	}
	if s.from.Year() == s.last().Year() {
		return s.from.Format("2 Jan") + " to " + s.last().Format("2 Jan 2006")
	}
	return s.from.Format("2 Jan 2006") + " to " + s.last().Format("2 Jan 2006")
}

func (s span) links(u address) []ui.Segment {
	link := func(preset, text string) ui.Segment {
		return ui.Segment{Href: u.with("range", preset, "from", "", "to", ""), Text: text, On: s.preset == preset}
	}
	return []ui.Segment{link("today", "Today"), link("7d", "7 days"), link("30d", "30 days"), link("month", "This month")}
}
