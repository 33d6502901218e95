package report

import (
	"time"

	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// steps are the buckets of an answer, one after another without gaps.
type steps struct {
	starts, stops []time.Time
	whole         []bool // the step is a whole calendar day, or a whole hour
}

func (t *steps) add(start, stop time.Time, whole bool) {
	t.starts, t.stops, t.whole = append(t.starts, start.UTC()), append(t.stops, stop.UTC()), append(t.whole, whole)
}

// steps checks the query and cuts its span.
func (in Query) steps() (t steps, err error) {
	if err := in.check(); err != nil {
		return t, err
	}
	zone := in.Zone
	if zone == nil {
		zone = time.UTC
	}
	for at := in.From; at.Before(in.To); {
		next, whole := in.To, false
		switch in.Step {
		case StepDay:
			day := period.At(period.Day, zone, at)
			next, whole = day.End, at.Equal(day.Start) && !day.End.After(in.To)
		case StepHour:
			next = at.Add(time.Hour)
			whole = at.Truncate(time.Hour).Equal(at) && !next.After(in.To)
		}
		if next.After(in.To) {
			next = in.To
		}
		if len(t.starts) == maxSteps {
			return t, fault.New(fault.Invalid, "This range has more than %d steps. Choose a shorter range or a coarser step.", maxSteps).WithParam("from")
		}
		t.add(at, next, whole)
		at = next
	}
	return t, nil
}

func (in Query) check() error {
	switch {
	case !in.From.Before(in.To):
		return fault.New(fault.Invalid, "The range is empty: its end must come after its start.").WithParam("to")
	case !whole(in.From) || !whole(in.To):
		return fault.New(fault.Invalid, "A range must start and end at a quarter of an hour.").WithParam("from")
	case in.Step != StepTotal && in.Step != StepDay && in.Step != StepHour:
		return fault.New(fault.Invalid, "A step is total, day or hour.").WithParam("step")
	}
	switch in.Group {
	case ByNothing, ByModel, ByOrg:
		return nil
	case ByKey, ByProject:
		if in.Org != ids.Nil {
			return nil
		}
		return fault.New(fault.Invalid, "Usage of all organizations is grouped by model or org.").WithParam("group")
	}
	return fault.New(fault.Invalid, "A group is model, key, project or org.").WithParam("group")
}

// whole reports whether t is where a rollup begins.
func whole(t time.Time) bool { return t.Truncate(bucket).Equal(t) }
