// Package report reads what was used and what it cost, for pages, the control API and exports.
//
// It owns the questions (usage by group and step, one request explained, revenue of a month, what the operator must look
// at) and who may ask them. It writes nothing and computes no price: amounts are what the rater stored.
//
// Invariants: spans are half-open and multiples of 15 minutes, so a day in any zone is exact and the sum of its hours;
// a member sees its own organization only (and row-level security says so again); every list has a limit.
package report

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// Limits of an answer.
const (
	MaxCells = 20_000
	MaxRows  = 200
	bucket   = 15 * time.Minute
)

// Steps and groups of a query.
const (
	StepTotal = "total"
	StepDay   = "day"
	StepHour  = "hour"

	ByNothing = ""
	ByModel   = "model"
	ByKey     = "key"
	ByProject = "project"
	ByOrg     = "org"
)

// Query asks for usage over [From, To).
type Query struct {
	From, To            time.Time
	Zone                *time.Location // days and hours are cut in it; nil = UTC
	Step, Group         string
	Org                 ids.ID // ids.Nil = all: operators only
	Model, Key, Project ids.ID // ids.Nil = all
}

// Cell is one group in one step. Groups without usage are missing.
type Cell struct {
	Start    time.Time
	Group    ids.ID
	Label    string // the group's name
	Requests int64
	Errors   int64
	Usage    usage.Vector
	Charged  money.Nano
	Overrun  money.Nano    // borne by the operator
	Saved    money.Nano    // by cached tokens, against the input price
	TTFT     time.Duration // mean time to first token; 0 = no stream
	Decode   time.Duration // first token to end, summed: with Usage.Generated the speed of streams
}

// Service answers. It is safe for concurrent use.
type Service struct {
	db *db.DB
}

// New makes a service.
func New(d *db.DB) *Service { return &Service{db: d} }

// read runs fn in the organization's scope after asking the actor, or for ids.Nil as the system for operators.
func (s *Service) read(ctx context.Context, by tenants.Actor, org ids.ID, fn func(r *q.Queries) error) error {
	scope := db.Org(org)
	err := by.Require(tenants.UsageRead, org)
	if org == ids.Nil {
		scope, err = db.System(), by.RequireOperator()
	}
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, scope.ReadOnly(), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}

// Usage reads rollups.
func (s *Service) Usage(ctx context.Context, by tenants.Actor, in Query) ([]Cell, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	zone := "UTC"
	if in.Zone != nil {
		zone = in.Zone.String()
	}
	var cells []Cell
	err := s.read(ctx, by, in.Org, func(r *q.Queries) error {
		rows, err := r.ReportCells(ctx, q.ReportCellsParams{Step: in.Step, Zone: zone, Since: in.From, Until: in.To, Grp: in.Group,
			Org: opt(in.Org), Model: opt(in.Model), Key: opt(in.Key), Project: opt(in.Project), MaxRows: MaxCells + 1})
		if err != nil {
			return err
		}
		if len(rows) > MaxCells {
			return fault.New(fault.Invalid, "This report has more than %d cells. Choose a shorter range or a coarser step.", MaxCells)
		}
		cells = make([]Cell, len(rows))
		for i, row := range rows {
			cells[i] = cellOf(row)
		}
		return label(ctx, r, cells)
	})
	return cells, err
}

func (in Query) check() error {
	switch {
	case !in.From.Before(in.To):
		return fault.New(fault.Invalid, "The range is empty: its end must come after its start.").WithParam("to")
	case in.From.Truncate(bucket) != in.From || in.To.Truncate(bucket) != in.To:
		return fault.New(fault.Invalid, "A range must start and end at a quarter of an hour.").WithParam("from")
	case in.Step != StepTotal && in.Step != StepDay && in.Step != StepHour:
		return fault.New(fault.Invalid, "A step is total, day or hour.").WithParam("step")
	}
	switch in.Group {
	case ByNothing, ByModel, ByKey, ByProject, ByOrg:
		return nil
	}
	return fault.New(fault.Invalid, "A group is model, key, project or org.").WithParam("group")
}

func cellOf(r q.ReportCellsRow) Cell {
	c := Cell{Start: r.Start, Group: r.Grp, Requests: r.Requests, Errors: r.Errors, Charged: money.Nano(r.ChargedNano),
		Overrun: money.Nano(r.OverrunNano), Saved: money.Nano(r.SavedNano), Decode: time.Duration(r.DecodeMsSum) * time.Millisecond}
	if r.TtftCount > 0 {
		c.TTFT = time.Duration(r.TtftMsSum/r.TtftCount) * time.Millisecond
	}
	c.Usage = usage.Vector{usage.Input: r.InputTokens, usage.Cached: r.CachedTokens, usage.CacheWrite: r.CacheWriteTokens, usage.Output: r.OutputTokens,
		usage.Reasoning: r.ReasoningTokens, usage.Image: r.ImageTokens, usage.Audio: r.AudioTokens, usage.Requests: r.Requests}
	return c
}

func label(ctx context.Context, r *q.Queries, cells []Cell) error {
	seen := map[ids.ID]string{}
	var list []ids.ID
	for _, c := range cells {
		if _, ok := seen[c.Group]; !ok && c.Group != ids.Nil {
			seen[c.Group] = ""
			list = append(list, c.Group)
		}
	}
	if len(list) == 0 {
		return nil
	}
	rows, err := r.ReportLabels(ctx, list)
	if err != nil {
		return err
	}
	for _, row := range rows {
		seen[row.ID] = row.Label
	}
	for i := range cells {
		cells[i].Label = seen[cells[i].Group]
	}
	return nil
}

func opt(id ids.ID) *ids.ID {
	if id == ids.Nil {
		return nil
	}
	return &id
}
