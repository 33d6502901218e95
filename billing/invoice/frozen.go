package invoice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
)

// codeOnItsWay is the code of usage that is logged and not booked yet.
const codeOnItsWay = "usage_on_its_way"

// logTimeout bounds asking the usage log.
const logTimeout = 10 * time.Second

// frozen refuses a month that usage may still join: by the clock of the process and by the database's, and while the rater has not
// come past the freeze in the usage log.
func (s *Service) frozen(ctx context.Context, month time.Time) error {
	at := FreezeOf(month).Add(draftAfter)
	if now := s.now(); now.Before(month) {
		return fault.New(fault.Conflict, "The month has not begun: there is nothing to draft.").WithCode("month_not_frozen")
	} else if now.Before(at) {
		return open(at)
	}
	return wrapped("whether a month is frozen", s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		r := q.New(tx)
		if now, err := s.database(ctx, r); err != nil {
			return err
		} else if now.Before(at) {
			return open(at)
		}
		rated, err := s.rated(ctx, r, FreezeOf(month))
		if err == nil && !rated {
			err = fault.New(fault.Conflict, "Requests of %s may wait in the usage log to be booked.", month.Format("January 2006")).WithCode(codeOnItsWay)
		}
		return err
	}))
}

func open(at time.Time) error {
	return fault.New(fault.Conflict, "The month is open until %s: usage may still join it.", at.UTC().Format("2 January 2006 15:04 UTC")).WithCode("month_not_frozen")
}

// rated reports whether what the usage log had stored by a moment is booked: the rater is past it, or nothing waits.
func (s *Service) rated(ctx context.Context, r *q.Queries, to time.Time) (bool, error) {
	if s.c.Bus == nil {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	info, err := usagelog.Inspect(ctx, s.c.Bus.JetStream())
	if errors.Is(err, usagelog.ErrNoLog) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask the usage log: %w", err)
	}
	row, err := r.RatedTo(ctx, info.Incarnation)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	return info.First > info.Last || uint64(row.Seq) >= info.Last || row.LastAt != nil && row.LastAt.After(to), nil
}
