package credit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// store is the transactions of a gateway. Each may be run again by db.InTx, so what it gives is made anew every time.
type store struct{ db *db.DB }

func (s store) inTx(ctx context.Context, what string, fn func(queries *q.Queries) error) error {
	err := s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error { return fn(q.New(tx)) })
	if err != nil && !errors.Is(err, errEpochOver) && !errors.Is(err, errNoRoom) {
		return fmt.Errorf("credit: %s: %w", what, err)
	}
	return err
}

func (s store) openEpoch(ctx context.Context, id ids.ID, dataLock string, c *Config) (seen time.Time, err error) {
	err = s.inTx(ctx, "open an epoch", func(queries *q.Queries) (err error) {
		seen, err = queries.InsertEpoch(ctx, q.InsertEpochParams{ID: id, Process: c.Process, DataLock: dataLock,
			ValidMs: c.Validity.Milliseconds(), RequestMaxMs: c.RequestMax.Milliseconds(), LogSeen: c.logSeen()})
		return err
	})
	return seen, err
}

// logSeen is where the log ends, as epochs keep it: {incarnation: sequence}. The log has one shard.
func (c *Config) logSeen() []byte {
	if c.Log == nil {
		return []byte("{}")
	}
	incarnation, seq := c.Log()
	var last uint64
	for _, n := range seq {
		last = max(last, n)
	}
	text, err := json.Marshal(map[string]uint64{incarnation: last})
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return text
}

// beat gives errEpochOver when the row is gone, closed, or older than lastSeen.
func (s store) beat(ctx context.Context, id ids.ID, lastSeen time.Time, c *Config) (seen time.Time, err error) {
	err = s.inTx(ctx, "heartbeat", func(queries *q.Queries) (err error) {
		seen, err = queries.BeatEpoch(ctx, q.BeatEpochParams{ID: id, LastSeen: lastSeen, LogSeen: c.logSeen()})
		return over(err)
	})
	return seen, err
}

func (s store) goodbye(ctx context.Context, id ids.ID, end LogEnd) error {
	logEnd, err := json.Marshal(end)
	if err != nil {
		return fmt.Errorf("credit: log end: %w", err)
	}
	return s.inTx(ctx, "goodbye", func(queries *q.Queries) error {
		n, err := queries.GoodbyeEpoch(ctx, q.GoodbyeEpochParams{ID: id, LogEnd: logEnd})
		if err == nil && n == 0 {
			return errEpochOver
		}
		return err
	})
}

func over(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errEpochOver
	}
	return err
}

// errNoRoom rolls a raise back: a budget had less left than was asked.
var errNoRoom = errors.New("credit: a budget has no room")

// raise is what a raise is to add to one budget, and what came of it.
type raise struct {
	budget ids.ID
	delta  money.Nano

	row      row        // the allotment as the transaction left it, or would have
	headroom money.Nano // what the budget has left afterwards
	others   money.Nano // what other epochs have of it
}

type row struct{ allotted, used, returned money.Nano }

// raise adds to allotments and their budgets, all or none (errNoRoom: none, but headroom and others are told). The raises
// must be sorted by budget. committing is true when the outcome of an error is unknown.
func (s store) raise(ctx context.Context, epoch, org ids.ID, raises []raise) (committing bool, err error) {
	budgets, deltas := make([]ids.ID, len(raises)), make([]int64, len(raises))
	for i, r := range raises {
		budgets[i], deltas[i] = r.budget, int64(r.delta)
	}
	err = s.inTx(ctx, "raise allotments", func(queries *q.Queries) error {
		committing = false
		if _, err := queries.HoldEpochOpen(ctx, epoch); err != nil {
			return over(err)
		}
		rows, err := queries.RaiseAllotments(ctx, q.RaiseAllotmentsParams{OrgID: org, EpochID: epoch, Budgets: budgets, Deltas: deltas})
		if err != nil {
			return err
		}
		locked, err := queries.LockBudgets(ctx, q.LockBudgetsParams{OrgID: org, Ids: budgets})
		if err != nil {
			return err
		}
		if err := note(raises, rows, locked); err != nil {
			return err
		}
		n, err := queries.RaiseBudgets(ctx, q.RaiseBudgetsParams{OrgID: org, Ids: budgets, Deltas: deltas})
		if err != nil {
			return err
		}
		if n != int64(len(raises)) {
			for i := range raises { // nothing of it will have happened
				raises[i].headroom += raises[i].delta
			}
			return errNoRoom
		}
		committing = true
		return nil
	})
	return committing, err
}

func note(raises []raise, rows []q.RaiseAllotmentsRow, locked []q.LockBudgetsRow) error {
	slices.SortFunc(rows, func(a, b q.RaiseAllotmentsRow) int { return bytes.Compare(a.BudgetID[:], b.BudgetID[:]) })
	if len(rows) != len(raises) || len(locked) != len(raises) {
		return fmt.Errorf("%d budgets, %d allotments, %d asked for", len(locked), len(rows), len(raises))
	}
	for i := range raises {
		r, b := &raises[i], locked[i]
		r.row = row{money.Nano(rows[i].AllottedNano), money.Nano(rows[i].UsedNano), money.Nano(rows[i].ReturnedNano)}
		own := r.row.allotted - r.delta - r.row.used - r.row.returned
		r.others = money.Nano(b.OutstandingNano) - own
		r.headroom = money.Nano(b.CapNano-b.SettledNano-b.OutstandingNano) - r.delta
	}
	return nil
}

// giving is what a return is to take from one allotment, and what came of it.
type giving struct {
	budget ids.ID
	amount money.Nano // in: at most; out: returned in fact

	row      row        // as the transaction left it
	headroom money.Nano // of the budget, with what was returned
}

// giveBack returns money of allotments to their budgets. The givings must be sorted by budget.
func (s store) giveBack(ctx context.Context, epoch, org ids.ID, asked []giving) (given []giving, committing bool, err error) {
	budgets := make([]ids.ID, len(asked))
	for i, g := range asked {
		budgets[i] = g.budget
	}
	err = s.inTx(ctx, "return allotments", func(queries *q.Queries) error {
		committing, given = false, slices.Clone(asked)
		rows, err := queries.LockAllotments(ctx, q.LockAllotmentsParams{OrgID: org, EpochID: epoch, Budgets: budgets})
		if err != nil {
			return err
		}
		deltas := make([]int64, len(given))
		for i := range given {
			g := &given[i]
			if len(rows) > 0 && rows[0].BudgetID == g.budget {
				g.row = row{money.Nano(rows[0].AllottedNano), money.Nano(rows[0].UsedNano), money.Nano(rows[0].ReturnedNano)}
				rows = rows[1:]
			} else if g.amount > 0 {
				return errEpochOver // what was raised is gone: an older copy of the database
			}
			g.amount = min(g.amount, g.row.allotted-g.row.used-g.row.returned)
			g.row.returned += g.amount
			deltas[i] = int64(g.amount)
		}
		if _, err := queries.ReturnAllotments(ctx, q.ReturnAllotmentsParams{OrgID: org, EpochID: epoch, Budgets: budgets, Deltas: deltas}); err != nil {
			return err
		}
		locked, err := queries.LockBudgets(ctx, q.LockBudgetsParams{OrgID: org, Ids: budgets})
		if err != nil {
			return err
		}
		if len(locked) != len(given) {
			return errEpochOver // a budget is gone: an older copy of the database
		}
		for i, b := range locked {
			given[i].headroom = money.Nano(b.CapNano-b.SettledNano-b.OutstandingNano) + given[i].amount
		}
		if _, err := queries.LowerOutstanding(ctx, q.LowerOutstandingParams{OrgID: org, Ids: budgets, Deltas: deltas}); err != nil {
			return err
		}
		committing = true
		return nil
	})
	return given, committing, err
}
