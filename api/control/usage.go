package control

import (
	"slices"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

// Bounds of a usage report.
const (
	usageGrain    = 15 * time.Minute // of the rollups
	maxUsageDays  = 400
	maxUsageHours = 31 * 24
	defaultDays   = 30
)

// OrgUsageQuery asks for an organization's usage.
type OrgUsageQuery struct {
	From     time.Time `json:"from,omitempty"`
	To       time.Time `json:"to,omitempty"`
	Step     string    `json:"step,omitempty"`
	GroupBy  string    `json:"group_by,omitempty"`
	TimeZone string    `json:"time_zone,omitempty"`
}

// UsageReport is usage by step and group.
type UsageReport struct {
	From    time.Time  `json:"from"`
	To      time.Time  `json:"to"`
	Step    string     `json:"step"`
	GroupBy string     `json:"group_by"`
	Data    []UsageRow `json:"data"`
}

// UsageRow is the usage of one group in one step.
type UsageRow struct {
	Start    time.Time `json:"start"`
	Group    string    `json:"group,omitempty"`
	Label    string    `json:"label,omitempty"`
	Requests int64     `json:"requests"`
	Errors   int64     `json:"errors"`
	Tokens   Tokens    `json:"tokens"`
	Charged  Amount    `json:"charged"`
	Overrun  Amount    `json:"overrun"`
}

// Tokens counts tokens by class; the classes do not overlap.
type Tokens struct {
	Input      int64 `json:"input"`
	Cached     int64 `json:"cached"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning"`
	Image      int64 `json:"image"`
	Audio      int64 `json:"audio"`
}

func tokensOf(v usage.Vector) Tokens {
	return Tokens{Input: v[usage.Input], Cached: v[usage.Cached], CacheWrite: v[usage.CacheWrite], Output: v[usage.Output],
		Reasoning: v[usage.Reasoning], Image: v[usage.Image], Audio: v[usage.Audio]}
}

func (a *api) orgUsage(c *call, q OrgUsageQuery) (UsageReport, error) {
	org, err := c.org()
	if err != nil {
		return UsageReport{}, err
	}
	if _, err := a.Tenants.Org(c, c.actor, org); err != nil {
		return UsageReport{}, err
	}
	return a.usage(c, org, q, "none", "model", "project", "key")
}

func (a *api) allUsage(c *call, q OrgUsageQuery) (UsageReport, error) {
	return a.usage(c, ids.Nil, q, "none", "model", "org")
}

func (a *api) usage(c *call, org ids.ID, in OrgUsageQuery, groups ...string) (UsageReport, error) {
	q, err := a.usageQuery(in, groups)
	if err != nil {
		return UsageReport{}, err
	}
	q.Org = org
	cells, err := a.Books.Usage(c, c.actor, q)
	if err != nil {
		return UsageReport{}, err
	}
	out := UsageReport{From: q.From, To: q.To, Step: q.Step, GroupBy: q.Group, Data: make([]UsageRow, len(cells))}
	for i, cell := range cells {
		out.Data[i] = UsageRow{Start: cell.Start, Group: cell.Group, Label: cell.Label, Requests: cell.Requests, Errors: cell.Errors,
			Tokens: tokensOf(cell.Tokens), Charged: amount(cell.Charged), Overrun: amount(cell.Overrun)}
	}
	return out, nil
}

// usageQuery fills defaults (the last 30 days, in one step, ungrouped, UTC) and checks bounds.
func (a *api) usageQuery(in OrgUsageQuery, groups []string) (q UsageQuery, err error) {
	q = UsageQuery{From: in.From, To: in.To, Step: orDefault(in.Step, "total"), Group: orDefault(in.GroupBy, "none")}
	if q.Zone, err = time.LoadLocation(orDefault(in.TimeZone, "UTC")); err != nil || in.TimeZone == "Local" {
		return q, fault.New(fault.Invalid, "%q is no IANA time zone.", in.TimeZone).WithParam("time_zone")
	}
	if q.To.IsZero() {
		q.To = a.Clock.Now().UTC().Truncate(usageGrain).Add(usageGrain)
	}
	if q.From.IsZero() {
		q.From = q.To.AddDate(0, 0, -defaultDays)
	}
	longest := maxUsageDays * 24 * time.Hour
	if q.Step == "hour" {
		longest = maxUsageHours * time.Hour
	}
	switch {
	case !slices.Contains([]string{"total", "day", "hour"}, q.Step):
		return q, fault.New(fault.Invalid, "The step is total, day or hour.").WithParam("step")
	case !slices.Contains(groups, q.Group):
		return q, fault.New(fault.Invalid, "Group by one of %v.", groups).WithParam("group_by")
	case !q.From.Truncate(usageGrain).Equal(q.From):
		return q, fault.New(fault.Invalid, "Give a multiple of 15 minutes.").WithParam("from")
	case !q.To.Truncate(usageGrain).Equal(q.To):
		return q, fault.New(fault.Invalid, "Give a multiple of 15 minutes.").WithParam("to")
	case !q.From.Before(q.To) || q.To.Sub(q.From) > longest:
		return q, fault.New(fault.Invalid, "from must lie before to, and at most %d days (%d hours by hour).", maxUsageDays, maxUsageHours).WithParam("from")
	}
	return q, nil
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
