package responses

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/gate"
)

// stop ends a run, if it is here.
func (s *Service) stop(id ids.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[id]; r != nil {
		r.cancel(nil)
	}
}

// Beat says that this process's runs are alive, and ends those that were ended elsewhere: cancelled or deleted.
func (s *Service) Beat(ctx context.Context) error {
	s.mu.Lock()
	mine := make([]ids.ID, 0, len(s.runs))
	for id, r := range s.runs {
		if r.stored {
			mine = append(mine, id)
		}
	}
	s.mu.Unlock()
	if len(mine) == 0 {
		return nil
	}
	live := map[ids.ID]bool{}
	err := s.o.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		clear(live)
		rows, err := q.New(tx).ResponsesAlive(ctx, q.ResponsesAliveParams{Owner: &s.owner, Running: mine})
		for _, id := range rows {
			live[id] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range mine {
		if !live[id] {
			s.stop(id) // one that has just ended does not mind
		}
	}
	return nil
}

// Rescue ends the orphans: responses whose process has fallen silent.
func (s *Service) Rescue(ctx context.Context) error {
	var orphans []q.ResponsesOrphanedRow
	err := s.o.DB.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
		orphans, err = q.New(tx).ResponsesOrphaned(ctx, q.ResponsesOrphanedParams{SilentMs: deadAfter.Milliseconds(), MaxRows: rescueRows})
		return err
	})
	if err != nil {
		return err
	}
	for _, o := range orphans {
		gone := fault.New(fault.Unavailable, "The gateway that made this response is gone. Try again.")
		if _, err := s.fail(ctx, o.OrgID, o.ID, []byte(o.Response), o.Streamed, gone); err != nil {
			return fmt.Errorf("ending an orphan: %w", err)
		}
	}
	return nil
}

// Drain starts no more runs and waits until those that run have ended; when ctx ends first they are called off: they end as failed,
// and nobody pays for them.
func (s *Service) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the last run, which the cancelling below sees to
		s.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for _, r := range s.runs {
		r.cancel(gate.ErrCalledOff)
	}
	s.mu.Unlock()
	bound := time.NewTimer(cancelWait)
	defer bound.Stop()
	select {
	case <-ended:
		return nil
	case <-bound.C:
		return errors.New("responses: background responses did not end in time")
	}
}
