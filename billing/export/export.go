// Package export writes usage and revenue as CSV, JSON Lines or Parquet, for customers' and the operator's own programs.
//
// It owns the columns (their names and meanings are a contract), the order of rows, the manifest and how an export that broke
// off goes on. It computes no price: amounts are what the rater stored. It does not own who downloads by which surface.
//
// Words. Data set: usage (a row per request), costs (FOCUS-style rows per day for customers), revenue (the same sums, for
// the operator) or months (what billing/month says, a row per month and customer). Cursor: where a row stands in the order; an export goes on behind it. Part: one file of a folder.
//
// Invariants: all rows come from one snapshot of the database, a page at a time, so memory does not grow with the range; the
// order of rows is the order of a key, so that the same range of a past that is complete gives the same bytes; a cell of
// text is never a formula; an amount is a decimal, exact to the nano-dollar; the manifest counts the rows that were written,
// not those that were meant; a member sees his own organization only, and row-level security says so again.
package export

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Kind names a data set.
type Kind string

// The data sets.
const (
	Usage   Kind = "usage"
	Costs   Kind = "costs"
	Revenue Kind = "revenue"
	Months  Kind = "months"
)

// Limits of an export.
const (
	// MaxRange is the longest range of one export.
	MaxRange = 400 * 24 * time.Hour
	// pageRows is how many rows are in memory at once.
	pageRows = 2000
	// atOnce is how many exports a process runs: each holds a connection and a snapshot.
	atOnce = 4
	// atMost bounds an export, whoever reads it: its snapshot keeps the database from cleaning up.
	atMost = 2 * time.Hour
	// statementTimeout bounds the reading of one page.
	statementTimeout = 5 * time.Minute
	// slack is how far the time in a request's id may lie from its start: both come from the gateway, one after the other.
	slack = time.Hour
	day   = 24 * time.Hour
)

// Query says what is exported.
type Query struct {
	Kind     Kind
	Org      ids.ID // ids.Nil = all: operators only
	From, To time.Time
	After    Cursor // the last row that is there already; zero = from the beginning
}

func (in Query) check(now time.Time) error {
	switch {
	case columnsOf(in.Kind) == nil:
		return fault.New(fault.Invalid, "An export is of usage, costs, revenue or months.").WithParam("kind")
	case in.Kind == Months && in.Org != ids.Nil:
		return fault.New(fault.Invalid, "Months are of all customers.").WithParam("kind")
	case !in.From.Before(in.To):
		return fault.New(fault.Invalid, "The range is empty: its end must come after its start.").WithParam("to")
	case in.To.Sub(in.From) > MaxRange:
		return fault.New(fault.Invalid, "One export spans at most %d days.", int(MaxRange/day)).WithParam("from")
	case in.To.After(now.Add(2 * day)):
		return fault.New(fault.Invalid, "The range ends in the future.").WithParam("to")
	}
	return nil
}

// Service exports. It is safe for concurrent use.
type Service struct {
	db    *db.DB
	clock clock.Clock
	slots chan struct{}

	mu   sync.Mutex
	busy map[ids.ID]bool // organizations whose export runs
}

// New makes a service.
func New(d *db.DB, c clock.Clock) *Service {
	return &Service{db: d, clock: c, slots: make(chan struct{}, atOnce), busy: map[ids.ID]bool{}}
}

// Check refuses what Write would refuse, before anything is written.
func (s *Service) Check(by tenants.Actor, in Query) error {
	var err error
	if in.Org == ids.Nil {
		err = by.RequireOperator()
	} else {
		err = by.Require(tenants.UsageRead, in.Org)
	}
	if err == nil && (in.Kind == Revenue || in.Kind == Months) {
		err = by.RequireOperator()
	}
	if err != nil {
		return err
	}
	return in.check(s.clock.Now())
}

// page is some rows in order; last is where the last of them stands.
type page struct {
	rows [][]cell
	last Cursor
}

// read gives the rows behind the query's cursor to each, a page at a time, all of one snapshot. at is when it was taken.
func (s *Service) read(ctx context.Context, by tenants.Actor, in Query, each func(at time.Time, p page) error) error {
	if err := s.Check(by, in); err != nil {
		return err
	}
	leave, err := s.enter(in.Org)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	scope := db.System()
	if in.Org != ids.Nil {
		scope = db.Org(in.Org)
	}
	begun := false
	return s.db.InTx(ctx, scope.ReadOnly().Snapshot().Timeout(statementTimeout), func(tx pgx.Tx) error {
		if begun {
			return errors.New("export: the snapshot was lost") // what is written cannot be taken back
		}
		begun = true
		r := &reader{q: q.New(tx), in: in, now: s.clock.Now(), names: map[ids.ID]q.ExportNamesRow{}}
		at, err := r.q.ExportNow(ctx)
		if err != nil {
			return fmt.Errorf("export: begin: %w", err)
		}
		return r.all(ctx, func(p page) error { return each(at, p) })
	})
}

// enter takes a place. A customer has one: who reads slowly holds up nobody but himself.
func (s *Service) enter(org ids.ID) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if org != ids.Nil && s.busy[org] {
		return nil, fault.New(fault.Limited, "An export of this organization is running already. Try again when it has ended.").WithRetryAfter(time.Minute)
	}
	select {
	case s.slots <- struct{}{}:
	default:
		return nil, fault.New(fault.Limited, "%d exports are running already. Try again when one has ended.", atOnce).WithRetryAfter(time.Minute)
	}
	if org != ids.Nil {
		s.busy[org] = true
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, org)
		<-s.slots
	}, nil
}

// reader reads one export.
type reader struct {
	q     *q.Queries
	in    Query
	now   time.Time
	names map[ids.ID]q.ExportNamesRow
}

func (r *reader) all(ctx context.Context, each func(page) error) error {
	switch r.in.Kind {
	case Usage:
		return r.requests(ctx, each)
	case Months:
		return r.months(ctx, each)
	}
	return r.sums(ctx, each)
}

// maxNames bounds what is remembered of names.
const maxNames = 20_000

// learn reads the names that are not known yet.
func (r *reader) learn(ctx context.Context, list map[ids.ID]bool) error {
	if len(r.names)+len(list) > maxNames {
		clear(r.names)
	}
	var want []ids.ID
	for id := range list {
		if _, ok := r.names[id]; !ok {
			r.names[id] = q.ExportNamesRow{} // what is gone is not asked for again
			want = append(want, id)
		}
	}
	if len(want) == 0 {
		return nil
	}
	rows, err := r.q.ExportNames(ctx, want)
	if err != nil {
		return fmt.Errorf("export: names: %w", err)
	}
	for _, row := range rows {
		r.names[row.ID] = row
	}
	return nil
}

// firstID is below every id of a moment and later.
func firstID(at time.Time) (id ids.ID) {
	ms := max(0, at.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(day) }
