// Package report reads what was used and what it cost, for pages, the control API and exports.
//
// It owns the questions (usage by group and step, one request explained, the movements of a balance, revenue, what the
// operator must look at) and who may ask them. It writes nothing and computes no price: amounts are what the rater stored.
//
// Words. Step: one bucket of time in an answer. Cell: one group in one step. The playground: all short-lived keys of the
// console together; no report shows them one by one.
//
// Invariants: spans are half-open and multiples of 15 minutes, and steps touch without overlapping, so that the hours of
// a day in any zone add up to the day, and its days to the whole; a member sees its own organization only (and row-level
// security says so again); every list has a limit.
package report

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
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
	maxSteps = 9_000 // hours of a year
	bucket   = 15 * time.Minute
)

// Steps and groups of a query.
const (
	StepTotal = "total"
	StepDay   = "day"  // a calendar day of the query's zone
	StepHour  = "hour" // counted from the query's start

	ByNothing = ""
	ByModel   = "model"
	ByKey     = "key"
	ByProject = "project"
	ByOrg     = "org"
)

// Playground stands for all keys of the console's playground, as a group and in filters.
var Playground = ids.ID{15: 1}

// playgroundLabel is how that group reads.
const playgroundLabel = "Playground"

// Query asks for usage over [From, To). Over all organizations there are no keys and projects: groups are ByNothing,
// ByModel and ByOrg, and the only filter is Model.
type Query struct {
	From, To            time.Time
	Zone                *time.Location // days are cut in it; nil = UTC
	Step, Group         string
	Org                 ids.ID   // ids.Nil = all: operators only
	Orgs                []ids.ID // of all, these alone; nil = every one
	Model, Key, Project ids.ID   // ids.Nil = all
}

// Sums is an amount of usage.
type Sums struct {
	Requests int64
	Errors   int64 // broken off by the engine, unanswered, or answered with 5xx
	Usage    usage.Vector
	Charged  money.Nano
	Overrun  money.Nano    // borne by the operator
	Saved    money.Nano    // by cached tokens, against the input price
	Decode   time.Duration // first token to end, summed: with Usage.Generated the speed of streams
	Streams  int64         // that had a first token
	First    time.Duration // time to first token, summed over Streams
}

// Add makes s the sum of both.
func (s *Sums) Add(o *Sums) {
	s.Requests, s.Errors = s.Requests+o.Requests, s.Errors+o.Errors
	for c, n := range o.Usage {
		s.Usage[c] += n
	}
	s.Charged, s.Overrun, s.Saved = s.Charged+o.Charged, s.Overrun+o.Overrun, s.Saved+o.Saved
	s.Decode, s.Streams, s.First = s.Decode+o.Decode, s.Streams+o.Streams, s.First+o.First
}

// Cell is one group in one step. Groups without usage are missing.
type Cell struct {
	Start time.Time // of the step
	Group ids.ID
	Label string // the group's name
	Sums
}

// Service answers. It is safe for concurrent use.
type Service struct {
	db    *db.DB
	clock clock.Clock
	one   closed[oneKey, Cell]
	all   closed[allKey, Cell]
	sold  closed[spanKey, revenueCell]
	keys  closed[allKeyOf, keyCell]
}

// New makes a service.
func New(d *db.DB, c clock.Clock) *Service { return &Service{db: d, clock: c} }

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
	t, err := in.steps()
	if err != nil {
		return nil, err
	}
	var cells []Cell
	err = s.read(ctx, by, in.Org, func(r *q.Queries) error {
		if in.Org == ids.Nil {
			cells, err = s.ofAll(ctx, r, in, t)
		} else {
			cells, err = s.ofOne(ctx, r, in, t)
		}
		return err
	})
	return cells, err
}

func tooMany(cells []Cell) error {
	if len(cells) <= MaxCells {
		return nil
	}
	return errTooMany()
}

func errTooMany() error {
	return fault.New(fault.Invalid, "This report has more than %d cells. Choose a shorter range or a coarser step.", MaxCells)
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// label names the cells' groups, and makes one group of the playground's keys.
func label(ctx context.Context, r *q.Queries, cells []Cell) ([]Cell, error) {
	names, err := labels(ctx, r, cells)
	if err != nil || len(names) == 0 {
		return cells, err
	}
	out := cells[:0]
	played := map[int64]int{} // start to the position of the playground's cell
	for _, c := range cells {
		name := names[c.Group]
		if !name.Hidden {
			c.Label = name.Label
			out = append(out, c)
			continue
		}
		if i, ok := played[c.Start.Unix()]; ok {
			out[i].Add(&c.Sums)
			continue
		}
		c.Group, c.Label = Playground, playgroundLabel
		played[c.Start.Unix()] = len(out)
		out = append(out, c)
	}
	return out, nil
}

func labels(ctx context.Context, r *q.Queries, cells []Cell) (map[ids.ID]q.ReportLabelsRow, error) {
	seen := map[ids.ID]q.ReportLabelsRow{}
	var list []ids.ID
	for _, c := range cells {
		if _, ok := seen[c.Group]; !ok && c.Group != ids.Nil {
			seen[c.Group] = q.ReportLabelsRow{}
			list = append(list, c.Group)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	rows, err := r.ReportLabels(ctx, list)
	for _, row := range rows {
		seen[row.ID] = row
	}
	return seen, err
}

func opt(id ids.ID) *ids.ID {
	if id == ids.Nil {
		return nil
	}
	return &id
}
