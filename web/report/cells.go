// Package report turns rated usage into charts, tables and CSV files, for customers and operators alike.
//
// It owns spans of days in a zone, the measures, the pivot from cells to rows and buckets, and the address that keeps a
// report's filters. It reads nothing itself: cells come from the pages' readers. Invariants: spans are half-open and cut
// at midnight of their zone; every total is the sum of the rows that are shown.
package report

import (
	"slices"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/ui"
)

// Step is the width of a report's bucket.
type Step string

// The steps. Both are cut in the query's zone.
const (
	StepHour Step = "hour"
	StepDay  Step = "day"
)

// GroupBy is what a report's rows are.
type GroupBy string

// The groups. ByDay asks for cells with an empty Group.
const (
	ByModel GroupBy = "model"
	ByKey   GroupBy = "key"
	ByDay   GroupBy = "day"
	ByOrg   GroupBy = "org" // the operator's reports only
)

// Query asks for rated usage in a half-open span. From and To are multiples of 15 minutes.
type Query struct {
	From, To time.Time
	Zone     *time.Location // hours and days are cut in it
	Step     Step
	Group    GroupBy
	Model    string // only this model; empty = all
	Key      ids.ID // only this key; Nil = all
	Org      ids.ID // the operator's reports only: only this customer; Nil = all
}

// Cell is one bucket of one group. Cells without usage may be missing.
type Cell struct {
	Bucket   time.Time // start of the hour or day in the query's zone, as an instant
	Group    string    // model name, key or org id (ids.Format) or ""
	Label    string    // how the group reads
	Requests int64
	Errors   int64
	Usage    usage.Vector
	Cost     money.Nano
}

// GroupOf reads a group from an address; the first allowed one is the default.
func GroupOf(s string, allowed ...GroupBy) GroupBy {
	if g := GroupBy(s); slices.Contains(allowed, g) {
		return g
	}
	return allowed[0]
}

// GroupLinks are the allowed groups as choices; the first is the default.
func GroupLinks(u Address, now GroupBy, allowed ...GroupBy) []ui.Segment {
	names := map[GroupBy]string{ByModel: "By model", ByKey: "By key", ByDay: "By time", ByOrg: "By customer"}
	var out []ui.Segment
	for i, g := range allowed {
		value := string(g)
		if i == 0 {
			value = ""
		}
		out = append(out, ui.Segment{Href: u.With("group", value), Text: names[g], On: g == now})
	}
	return out
}
