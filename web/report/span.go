package report

import (
	"time"

	"millrace/web/ui"
)

// Span is a report's half-open range of whole days in a zone, and the step of its buckets.
type Span struct {
	From, To time.Time
	Step     Step
	Preset   string // "today", "7d", "30d", "month" or "" for a range of one's own
}

const (
	maxSpanDays  = 366          // of one report
	hourlyUpTo   = 2            // days that are cut into hours
	DateLayout   = "2006-01-02" // of days in addresses and files
	defaultRange = "30d"
)

// SpanOf reads the range from the address; bad values fall back to the last 30 days. now is in the viewer's zone.
func SpanOf(get func(string) string, now time.Time) Span {
	s := Span{To: Day(now, 1), Step: StepDay, Preset: get("range")}
	from, errFrom := time.Parse(DateLayout, get("from"))
	to, errTo := time.Parse(DateLayout, get("to"))
	if errFrom == nil && errTo == nil && !to.Before(from) && days(from, to) < maxSpanDays {
		s.From, s.To, s.Preset = startOf(from, 0, now.Location()), startOf(to, 1, now.Location()), ""
	} else {
		switch s.Preset {
		case "today":
			s.From = Day(now, 0)
		case "7d":
			s.From = Day(now, -6)
		case "month":
			s.From = Day(now, 1-now.Day())
		default:
			s.From, s.Preset = Day(now, -29), defaultRange
		}
	}
	if days(s.From, s.To) <= hourlyUpTo {
		s.Step = StepHour
	}
	return s
}

// Day is the first moment of t's calendar day in t's zone, moved by whole days.
func Day(t time.Time, move int) time.Time { return startOf(t, move, t.Location()) }

// startOf is the first moment of a calendar day in a zone. Where clocks skip midnight that is the moment of the skip,
// for which time.Date may answer an hour of the day before.
func startOf(date time.Time, move int, zone *time.Location) time.Time {
	noon := time.Date(date.Year(), date.Month(), date.Day()+move, 12, 0, 0, 0, zone)
	t := time.Date(noon.Year(), noon.Month(), noon.Day(), 0, 0, 0, 0, zone)
	for t.Day() != noon.Day() {
		t = t.Add(15 * time.Minute)
	}
	return t
}

// days counts calendar days; a day with a clock change still is one.
func days(from, to time.Time) int {
	const half = 12 * time.Hour
	return int((to.Sub(from) + half) / (24 * time.Hour))
}

// Starts are the beginnings of the buckets.
func (s Span) Starts() []time.Time {
	var out []time.Time
	for t := s.From; t.Before(s.To); t = s.next(t) {
		out = append(out, t)
	}
	return out
}

func (s Span) next(t time.Time) time.Time {
	if s.Step == StepHour {
		return t.Add(time.Hour)
	}
	return Day(t, 1)
}

// Name is how a bucket reads.
func (s Span) Name(t time.Time) string {
	if s.Step == StepHour {
		if days(s.From, s.To) > 1 {
			return t.Format("2 Jan 15:04")
		}
		return t.Format("15:04")
	}
	return t.Format("2 Jan")
}

// Last is the last day inside the span.
func (s Span) Last() time.Time { return Day(s.To, -1) }

// Title says the range in words.
func (s Span) Title() string {
	if days(s.From, s.To) == 1 {
		return s.From.Format("2 January 2006")
	}
	if s.From.Year() == s.Last().Year() {
		return s.From.Format("2 Jan") + " to " + s.Last().Format("2 Jan 2006")
	}
	return s.From.Format("2 Jan 2006") + " to " + s.Last().Format("2 Jan 2006")
}

// Links are the preset ranges as choices.
func (s Span) Links(u Address) []ui.Segment {
	link := func(preset, text string) ui.Segment {
		return ui.Segment{Href: u.With("range", preset, "from", "", "to", ""), Text: text, On: s.Preset == preset}
	}
	return []ui.Segment{link("today", "Today"), link("7d", "7 days"), link("30d", "30 days"), link("month", "This month")}
}
