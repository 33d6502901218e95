package batch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
)

// RunSweeps sweeps until ctx ends. A sweep that fails is tried again at the next one's time.
func (s *Store) RunSweeps(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "batch: old files and batches stay for now", "cause", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Sweep removes files past their end, uploads that were given up, and batches that ended long ago.
func (s *Store) Sweep(ctx context.Context) error {
	now := s.now()
	for {
		var due []q.FilesToSweepRow
		err := s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
			due, err = q.New(tx).FilesToSweep(ctx, q.FilesToSweepParams{Now: now, GivenUp: now.Add(-giveUpAfter), MaxRows: sweptAtOnce})
			return err
		})
		if err != nil {
			return err
		}
		for _, f := range due {
			if err := s.sweep(ctx, f); err != nil {
				return err
			}
		}
		if len(due) < sweptAtOnce {
			break
		}
	}
	if err := s.sweepLines(ctx); err != nil {
		return err
	}
	return s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error { return q.New(tx).DeleteOldBatches(ctx, now.Add(-keepBatches)) })
}

// sweepLines removes the lines of batches that ended while their gateway died.
func (s *Store) sweepLines(ctx context.Context) error {
	var left []q.EndedBatchesWithLinesRow
	err := s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		left, err = q.New(tx).EndedBatchesWithLines(ctx, sweptAtOnce)
		return err
	})
	for _, b := range left {
		err = errors.Join(err, s.dropLines(ctx, b.OrgID, b.ID))
	}
	return err
}

// sweep removes one file, unless a batch was made of it meanwhile.
func (s *Store) sweep(ctx context.Context, f q.FilesToSweepRow) error {
	return s.in(ctx, f.OrgID, func(rows *q.Queries) error {
		_, err := rows.LockFile(ctx, q.LockFileParams(f))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // another process swept it
		}
		if err != nil {
			return err
		}
		used, err := rows.FileInUse(ctx, q.FileInUseParams{OrgID: f.OrgID, FileID: f.ID})
		if err != nil || used {
			return err
		}
		return remove(ctx, rows, f.OrgID, f.ID)
	})
}
