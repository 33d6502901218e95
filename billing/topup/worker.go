package topup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
)

// Times of the worker.
const (
	turnEvery = 2 * time.Second
	turnLimit = 2 * time.Minute
)

// Run tops balances up that run low, looks after unfinished top-ups, and beside that compares with the payment provider's
// lists every hour, until ctx ends. store keeps events that never arrived.
func (s *Service) Run(ctx context.Context, store Store) error {
	if !s.On() {
		<-ctx.Done()
		return ctx.Err()
	}
	var compares sync.WaitGroup
	compares.Go(func() { s.runCompare(ctx, store) })
	defer compares.Wait()
	tick := time.NewTicker(turnEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := s.Turn(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "topup: some top-ups wait for the next turn", "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return ctx.Err()
}

// runCompare compares in a loop of its own: it takes minutes where there are many payments.
func (s *Service) runCompare(ctx context.Context, store Store) {
	tick := time.NewTicker(turnEvery)
	defer tick.Stop()
	var compared time.Time
	for ctx.Err() == nil {
		if now := s.now(); now.Sub(compared) >= compareEvery {
			compared = now
			if _, err := s.Compare(ctx, store); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "topup: could not compare with the payment provider's lists", "cause", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Turn does what is due now.
func (s *Service) Turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	errs := []error{s.Recharge(ctx)}
	for ctx.Err() == nil {
		t, err := s.claim(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("topup: what is due: %w", err))...)
		}
		errs = append(errs, s.tend(ctx, t))
	}
	return errors.Join(errs...)
}

// claim takes a top-up that is due; no other process takes it for a minute.
func (s *Service) claim(ctx context.Context) (t q.Topup, err error) {
	now := s.now()
	until := now.Add(claimFor)
	err = s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		t, err = r.ClaimDueTopup(ctx, q.ClaimDueTopupParams{Until: until, Now: &now})
		return err
	})
	return t, err
}

// tend brings an unfinished top-up forward.
func (s *Service) tend(ctx context.Context, t q.Topup) error {
	switch {
	case Kind(t.Kind) == Auto:
		return s.charge(ctx, t)
	case State(t.State) == Created && t.SessionID == nil: // its form was never answered
		left := t
		left.State, left.NextAt = string(Expired), nil
		return s.finish(ctx, t, outlook{row: left})
	}
	_, err := s.Fulfil(ctx, t.OrgID, t.ID)
	return err
}
