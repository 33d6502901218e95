package fleet

import (
	"context"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/serving/plan"
)

// CommitBody makes a plan of a test's own the current one, without demands: nothing is repaired.
func (s *Service) CommitBody(ctx context.Context, p plan.Plan) error {
	return s.commitBody(ctx, p, false)
}

// CommitFor does so for the demands as they are.
func (s *Service) CommitFor(ctx context.Context, p plan.Plan) error {
	return s.commitBody(ctx, p, true)
}

func (s *Service) commitBody(ctx context.Context, p plan.Plan, demands bool) error {
	return s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		query := q.New(tx)
		w, err := s.world(ctx, query)
		if err != nil {
			return err
		}
		var wants []Wish
		if demands {
			if wants, err = wishes(ctx, query, w); err != nil {
				return err
			}
		}
		id := ids.New()
		if _, err := w.insertPlan(ctx, query, id, ByOperator, &p, wants, "", "test"); err != nil {
			return err
		}
		return commit(ctx, query, id, &p, "test")
	})
}

// OneStep makes an executor stop after every step.
func (e *Executor) OneStep() { e.most = 1 }

// Renew takes or keeps the lease.
func (e *Executor) Renew(ctx context.Context) (bool, error) {
	mine, _, err := e.take(ctx)
	return mine, err
}

// PassAsBefore is a pass of a holder that was paused between looking and acting: it believes in the term it had.
func (e *Executor) PassAsBefore(ctx context.Context, between func()) (int, error) {
	e.done = 0
	w, err := e.look(ctx)
	if err != nil {
		return 0, err
	}
	between()
	return e.done, e.carryOut(ctx, w, true)
}
