package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
)

// leaseName is the lease of who carries plans out.
const leaseName = "fleet"

// leaseFor is how long a term lasts without being kept: a control plane that was killed is replaced after that.
const leaseFor = 10 * time.Second

var (
	errLost  = errors.New("fleet: the lease was lost")
	errMoved = errors.New("fleet: the plan or a row has changed")
)

// take takes the lease, or keeps it. held is how long this term has lasted; mine is false when another has the lease.
func (e *Executor) take(ctx context.Context) (mine bool, held time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = e.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		row, err := q.New(tx).TakeLease(ctx, q.TakeLeaseParams{Name: leaseName, Holder: e.holder, Ms: e.cfg.Lease.Milliseconds()})
		if err == nil {
			mine, e.term, held = true, row.Term, millis(row.HeldMs)
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, 0, nil
	}
	return mine, held, err
}

// proved runs a change of the fleet: only while this term and this plan hold, which stay until the change is done.
func (e *Executor) proved(ctx context.Context, w *world, change func(query *q.Queries) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return e.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		query := q.New(tx)
		if err := e.prove(ctx, query, w); err != nil {
			return err
		}
		return change(query)
	})
}

// prove fails when the term or the plan is another one now.
func (e *Executor) prove(ctx context.Context, query *q.Queries, w *world) error {
	_, err := query.HoldLease(ctx, q.HoldLeaseParams{Name: leaseName, Holder: e.holder, Term: e.term})
	if errors.Is(err, pgx.ErrNoRows) {
		return errLost
	}
	if err != nil {
		return err
	}
	now, err := query.HoldPlan(ctx)
	if errors.Is(err, pgx.ErrNoRows) {
		if w.plan == nil {
			return nil
		}
		return errMoved
	}
	if err == nil && (w.plan == nil || w.plan.id != now) {
		return errMoved
	}
	return err
}

// drop gives the lease back, so that another need not wait for its end.
func (e *Executor) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	return e.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		return q.New(tx).DropLease(ctx, q.DropLeaseParams{Name: leaseName, Holder: e.holder, Term: e.term})
	})
}
