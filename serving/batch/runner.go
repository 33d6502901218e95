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
	"millrace/internal/ids"
	"millrace/serving/gate"
	"millrace/serving/route"
	"millrace/tenants/keys"
)

// Authenticator tells whose key it is whose hash was kept: *keys.Authenticator.
type Authenticator interface {
	AuthenticateHash(ctx context.Context, h keys.Hash) (keys.Principal, error)
}

// Router tells what room units have: *route.Router.
type Router interface {
	Spare(units []ids.ID) route.Spare
}

// Options of a runner. All but Lease, Poll and Grace are needed.
type Options struct {
	Store  *Store
	Gate   *gate.Gate
	Models gate.Models
	Keys   Authenticator
	Router Router
	Lease  time.Duration // of a batch; 0 = the standard
	Poll   time.Duration // between looks for batches; 0 = the standard
	Grace  time.Duration // for lines in flight when their batch ends; 0 = the standard
}

// Runner works on batches, of every organization. Run must be running.
type Runner struct {
	Options
	store *Store
	lease time.Duration
	rooms rooms

	stop, cutOff sync.Once
	stopping     chan struct{} // no line starts any more
	cut          chan struct{} // lines in flight are called off
	idle         chan struct{} // nothing is worked on any more
}

// NewRunner makes a runner.
func NewRunner(o Options) *Runner {
	for _, d := range []struct {
		set    *time.Duration
		normal time.Duration
	}{{&o.Lease, holdTime}, {&o.Poll, pollEvery}, {&o.Grace, callOffAfter}} {
		if *d.set == 0 {
			*d.set = d.normal
		}
	}
	return &Runner{Options: o, store: o.Store, lease: o.Lease, rooms: rooms{models: map[string]*room{}},
		stopping: make(chan struct{}), cut: make(chan struct{}), idle: make(chan struct{})}
}

// Run works on batches until Stop, or until ctx ends, for which it waits in any case. Lines are cut when ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	var work sync.WaitGroup
	places := make(chan struct{}, maxHeld)
	tick := time.NewTicker(r.Poll)
	defer tick.Stop()
	for running := true; running; {
		r.claimAll(ctx, &work, places)
		select {
		case <-ctx.Done():
			running = false
		case <-r.stopping:
			running = false
		case <-r.store.made:
		case <-tick.C:
		}
	}
	work.Wait()
	close(r.idle)
	<-ctx.Done()
	return ctx.Err()
}

// Rest starts no further line, and does not wait for those in flight.
func (r *Runner) Rest() { r.stop.Do(func() { close(r.stopping) }) }

// Stop starts no further line and waits for those in flight until ctx ends; then it calls them off, uncharged. It gives
// back what is held, so that another gateway can go on at once.
func (r *Runner) Stop(ctx context.Context) error {
	r.Rest()
	select {
	case <-r.idle:
		return nil
	case <-ctx.Done():
	}
	r.cutOff.Do(func() { close(r.cut) })
	select {
	case <-r.idle:
		return nil
	case <-time.After(statementTime):
		return errors.New("batch: lines did not end when they were called off")
	}
}

// claimAll takes batches while there are places and batches.
func (r *Runner) claimAll(ctx context.Context, work *sync.WaitGroup, places chan struct{}) {
	for {
		select {
		case <-r.stopping:
			return
		case places <- struct{}{}:
		default:
			return
		}
		b, err := r.claim(ctx)
		if err != nil {
			<-places
			if !errors.Is(err, pgx.ErrNoRows) && ctx.Err() == nil {
				slog.WarnContext(ctx, "batch: no batch could be claimed; tried again", "cause", err)
			}
			return
		}
		work.Go(func() {
			defer func() { <-places }()
			r.work(ctx, b)
		})
	}
}

func (r *Runner) claim(ctx context.Context) (b q.Batch, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	err = r.store.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		b, err = q.New(tx).ClaimBatch(ctx, q.ClaimBatchParams{Now: r.store.now(), LeaseMs: r.lease.Milliseconds()})
		return err
	})
	return b, err
}

// work does what there is to do on a batch, and lets it go.
func (r *Runner) work(ctx context.Context, b q.Batch) {
	h := &hold{runner: r, batch: b, life: ctx, endpoint: r.store.endpoints.find(b.Endpoint), cancelled: b.Status == Cancelling, failed: map[int32]int{}}
	held, end := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { h.keep(held, end) })
	err := h.steps(held)
	if cause := context.Cause(held); err != nil && cause != nil {
		err = cause
	}
	end(nil)
	keeper.Wait()
	p := h.paused
	switch {
	case err == nil, errors.Is(err, errStopped), errors.Is(err, errPaused):
	case errors.Is(err, errLost):
		slog.WarnContext(ctx, "batch: work was lost to another gateway", "batch", FormatBatch(b.ID))
		return
	case ctx.Err() != nil:
	default:
		slog.ErrorContext(ctx, "batch: work failed; tried again", "batch", FormatBatch(b.ID), "cause", err)
		p = &pause{wait: pauseMost}
	}
	h.release(ctx, p)
}

// steps takes a batch from where it stands to where it can get now.
func (h *hold) steps(ctx context.Context) error {
	if err := h.prepare(ctx); err != nil {
		return err
	}
	for {
		var err error
		switch status := h.batch.Status; {
		case status == Finalizing, status == Cancelling:
			if err = h.settle(ctx); err == nil {
				err = h.finish(ctx)
			}
		case status != Validating && status != InProgress:
			return nil
		case h.endpoint == nil:
			err = h.unserved()
		case status == Validating:
			err = h.validate(ctx)
		default:
			if err = h.lines(ctx); err == nil {
				err = h.finalizing(ctx, Completed)
			}
		}
		switch {
		case errors.Is(err, errExpired):
			err = h.finalizing(ctx, Expired)
		case errors.Is(err, errCancelled):
			err = nil
		}
		if err == nil {
			err = h.write(ctx, func(_ *q.Queries, now *q.Batch) error { h.batch = *now; return nil })
		}
		if err != nil {
			return err
		}
	}
}

// unserved leaves a batch to gateways that serve its endpoint: another version of the program made it. Without any, it ends
// with its window.
func (h *hold) unserved() error {
	if err := h.cause(); err != nil {
		return err
	}
	h.putOff(fault.New(fault.Unavailable, "This gateway does not serve %s.", h.batch.Endpoint).WithCode("endpoint_unavailable"), pauseMost)
	return errPaused
}

// prepare finds what every line needs.
func (h *hold) prepare(ctx context.Context) error {
	return h.runner.store.in(ctx, h.batch.OrgID, func(rows *q.Queries) error {
		hash, err := rows.KeyHashOf(ctx, q.KeyHashOfParams{OrgID: h.batch.OrgID, ID: h.batch.KeyID})
		if err == nil {
			h.hash = keys.Hash(hash)
		}
		return err
	})
}

// finalizing says that no line will run any more.
func (h *hold) finalizing(ctx context.Context, outcome string) error {
	return h.write(ctx, func(rows *q.Queries, b *q.Batch) error {
		if b.Status != Validating && b.Status != InProgress {
			return nil // cancelled meanwhile
		}
		_, err := rows.SetBatchFinalizing(ctx, q.SetBatchFinalizingParams{OrgID: b.OrgID, ID: b.ID, Outcome: outcome, Now: h.runner.store.now()})
		return err
	})
}
