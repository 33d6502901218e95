package batch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/tenants/keys"
)

// hold is this gateway's work on one batch, for one term.
type hold struct {
	runner   *Runner
	batch    q.Batch         // as last read by the goroutine that works on it
	life     context.Context // of this gateway
	endpoint *Endpoint
	hash     keys.Hash
	settling bool // what runs is of a batch that has ended

	mu        sync.Mutex
	cancelled bool
	paused    *pause
	failed    map[int32]int // tries of lines that keep their ids
}

// pause is why a batch cannot go on now.
type pause struct {
	code, message string
	wait          time.Duration
}

// Why work on a batch ends before its lines have.
var (
	errLost      = errors.New("batch: another gateway works on this batch by now")
	errStopped   = errors.New("batch: this gateway is shutting down")
	errCancelled = errors.New("batch: cancelled")
	errExpired   = errors.New("batch: expired")
	errPaused    = errors.New("batch: paused")
)

// cause says why no further line may start; nil = one may.
func (h *hold) cause() error {
	select {
	case <-h.runner.stopping:
		return errStopped
	default:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.cancelled:
		return errCancelled
	case !h.runner.store.now().Before(h.batch.ExpiresAt):
		return errExpired
	case h.paused != nil:
		return errPaused
	}
	return nil
}

// putOff pauses the batch: what one line met, others would meet.
func (h *hold) putOff(f *fault.Fault, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused == nil && !h.settling {
		code := f.Code
		if code == "" {
			code = f.Kind.String()
		}
		h.paused = &pause{code, f.Message, min(wait, pauseMost)}
	}
}

// keep renews the lease until ctx ends, and ends the work when it is lost or may be.
func (h *hold) keep(ctx context.Context, end context.CancelCauseFunc) {
	lease := h.runner.lease
	renewed := time.Now()
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		status, err := h.renew(ctx)
		switch {
		case err == nil:
			renewed = asked
			if status == Cancelling {
				h.mu.Lock()
				h.cancelled = true
				h.mu.Unlock()
			}
		case errors.Is(err, pgx.ErrNoRows), time.Since(renewed) > lease*2/3:
			end(errLost)
			return
		case ctx.Err() == nil:
			slog.WarnContext(ctx, "batch: a lease could not be renewed; tried again", "batch", FormatBatch(h.batch.ID), "cause", err)
		}
	}
}

func (h *hold) renew(ctx context.Context) (status string, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.runner.lease/3)
	defer cancel()
	err = h.runner.store.in(ctx, h.batch.OrgID, func(rows *q.Queries) error {
		status, err = rows.RenewBatch(ctx, q.RenewBatchParams{OrgID: h.batch.OrgID, ID: h.batch.ID, LeaseTerm: h.batch.LeaseTerm, LeaseMs: h.runner.lease.Milliseconds()})
		return err
	})
	return status, err
}

// write changes something of the batch, if this gateway still holds it; fn is told the batch as it is now. While the
// database is away it is tried again, for as long as ctx lets it.
func (h *hold) write(ctx context.Context, fn func(rows *q.Queries, now *q.Batch) error) error {
	for {
		err := h.writeOnce(ctx, fn)
		if err == nil || !db.Away(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(writeRetry):
		}
	}
}

func (h *hold) writeOnce(ctx context.Context, fn func(rows *q.Queries, now *q.Batch) error) error {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	return h.runner.store.in(ctx, h.batch.OrgID, func(rows *q.Queries) error {
		b, err := rows.HoldBatch(ctx, q.HoldBatchParams{OrgID: h.batch.OrgID, ID: h.batch.ID, LeaseTerm: h.batch.LeaseTerm})
		if errors.Is(err, pgx.ErrNoRows) {
			return errLost
		}
		if err != nil {
			return err
		}
		return fn(rows, &b)
	})
}

// release lets the batch go, so that whoever is next may claim it, when it is due.
func (h *hold) release(ctx context.Context, p *pause) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTime)
	defer cancel()
	arg := q.ReleaseBatchParams{OrgID: h.batch.OrgID, ID: h.batch.ID, LeaseTerm: h.batch.LeaseTerm, NextAt: h.runner.store.now()}
	if p != nil {
		arg.PauseCode, arg.PauseMessage, arg.NextAt = p.code, p.message, arg.NextAt.Add(p.wait)
	}
	if err := h.runner.store.in(ctx, h.batch.OrgID, func(rows *q.Queries) error { return rows.ReleaseBatch(ctx, arg) }); err != nil {
		slog.WarnContext(ctx, "batch: a lease could not be given back; it ends by itself", "batch", FormatBatch(h.batch.ID), "cause", err)
	}
}
