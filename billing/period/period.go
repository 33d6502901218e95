// Package period computes the calendar periods of budgets and statements in an organization's time zone, from the clock
// and never by a job. It owns nothing but that arithmetic.
//
// Invariants: a period begins at the first instant of its first local day, whatever daylight saving does to midnight; the
// same moment and zone always give the same period, so that every process finds the same budget row; consecutive periods
// touch and do not overlap.
package period

import (
	"fmt"
	"sync"
	"time"
	_ "time/tzdata" // the binary must not depend on the machine's zone files
)

// Kind is the length of a period.
type Kind string

// The kinds. A week begins on Monday (ISO 8601).
const (
	Total Kind = "total" // all time: it never resets
	Day   Kind = "day"
	Week  Kind = "week"
	Month Kind = "month"
)

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k == Total || k == Day || k == Week || k == Month }

// TotalStart is where the period Total begins: the key of its budget row.
var TotalStart = time.Unix(0, 0).UTC()

// Span is a period: Start is in it, End is not. End is zero for Total.
type Span struct{ Start, End time.Time }

// Contains reports whether t is in the span.
func (s Span) Contains(t time.Time) bool {
	return !t.Before(s.Start) && (s.End.IsZero() || t.Before(s.End))
}

// At is the period of kind k that t is in, in zone.
func At(k Kind, zone *time.Location, t time.Time) Span {
	y, m, d := t.In(zone).Date()
	switch k {
	case Day:
		return Span{startOf(zone, y, m, d), startOf(zone, y, m, d+1)}
	case Week:
		monday := d - (int(t.In(zone).Weekday())+6)%7
		return Span{startOf(zone, y, m, monday), startOf(zone, y, m, monday+7)}
	case Month:
		return Span{startOf(zone, y, m, 1), startOf(zone, y, m+1, 1)}
	default:
		return Span{Start: TotalStart}
	}
}

// startOf is the first second whose local date is the given one or later. Midnight itself may not exist (clocks go
// forward at it) or lie in the day before (clocks go back at it), so it is searched for: dates only grow.
func startOf(zone *time.Location, year int, month time.Month, day int) time.Time {
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC) // normalises day 0, 32 and month 13
	year, month, day = date.Date()
	reached := func(unix int64) bool {
		y, m, d := time.Unix(unix, 0).In(zone).Date()
		return y > year || y == year && (m > month || m == month && d >= day)
	}
	// No zone is further than 15 hours from UTC.
	const furthest = 15 * 3600
	before, at := date.Unix()-furthest, date.Unix()+furthest
	for at-before > 1 {
		if middle := before + (at-before)/2; reached(middle) {
			at = middle
		} else {
			before = middle
		}
	}
	return time.Unix(at, 0).UTC()
}

var zones sync.Map // name -> *time.Location: reading zone files on every request would be slow

// Zone gives the IANA zone of that name. "" and unknown names are errors.
func Zone(name string) (*time.Location, error) {
	if z, ok := zones.Load(name); ok {
		return z.(*time.Location), nil
	}
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("period: %q is not an IANA time zone", name)
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("period: %q is not an IANA time zone: %w", name, err)
	}
	zones.Store(name, z) // bounded: only names that exist are kept
	return z, nil
}
