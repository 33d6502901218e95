package ui

import (
	"context"
	"strings"
	"time"
)

// Tone colours and shapes a state. The word beside it says the same.
type Tone string

// The tones.
const (
	Quiet Tone = ""     // a ring: off, none, ended
	Good  Tone = "good" // a disc: works
	Warn  Tone = "warn" // a triangle: look soon
	Bad   Tone = "bad"  // a diamond: broken or refused
	Info  Tone = "info" // a square: in progress
)

// Blank is an empty state: what is missing, why, and the one next action.
type Blank struct {
	Icon   string // a name known to Icon; empty for a plain list
	Title  string
	Text   string
	Action Link // may be zero where nothing can be done
}

func (b Blank) icon() string {
	if b.Icon == "" {
		return "list"
	}
	return b.Icon
}

// Step is one line of a checklist.
type Step struct {
	Name, Text string
	Done       bool
	Action     Link
}

func nextStep(steps []Step) int {
	for i, s := range steps {
		if !s.Done {
			return i
		}
	}
	return -1
}

func stepState(s Step) string {
	if s.Done {
		return " (done)"
	}
	return " (to do)"
}

// Paging holds the links of a keyset-paged list; an empty one is not drawn.
type Paging struct {
	First string // set on every page but the first
	Next  string // set when older rows exist
}

// Segment is one choice of Segments.
type Segment struct {
	Href, Text string
	On         bool
}

func noticeIcon(t Tone) string {
	switch t {
	case Warn, Bad:
		return "triangle-alert"
	case Good:
		return "check"
	}
	return "info"
}

// noticeRole is set only where the notice is about something that just went wrong.
func noticeRole(t Tone) string {
	if t == Bad {
		return "alert"
	}
	return "note"
}

// nearLimit is the share in per cent from which a meter warns.
const nearLimit = 80

func meterTone(used, limit int64) Tone {
	switch p := Percent(used, limit); {
	case p >= 100:
		return Bad
	case p >= nearLimit:
		return Warn
	}
	return Quiet
}

// ShowTime prints a moment in the reader's zone with the zone's abbreviation; the year only when it is another one.
func ShowTime(ctx context.Context, t time.Time) string {
	c := ChromeOf(ctx)
	t = t.In(zone(c))
	if t.Year() == c.Now.In(zone(c)).Year() {
		return t.Format("2 Jan 15:04 MST")
	}
	return t.Format("2 Jan 2006 15:04 MST")
}

func zone(c Chrome) *time.Location {
	if c.Zone == nil {
		return time.UTC
	}
	return c.Zone
}

// Quantiles of a latency; zero when nothing was measured.
type Quantiles struct{ P50, P95 time.Duration }

// String is both for reading: "212 / 640 ms", "212 ms / 1.4 s".
func (q Quantiles) String() string {
	low, high := FormatLatency(q.P50), FormatLatency(q.P95)
	if strings.HasSuffix(high, " ms") {
		low = strings.TrimSuffix(low, " ms")
	}
	return low + " / " + high
}
