package assembly

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/billing/reconcile"
	"millrace/db"
	"millrace/db/q"
)

// The books are compared once a day, by whichever worker finds first that it is time.
const (
	reconcileEvery = 24 * time.Hour
	reconcileLook  = 30 * time.Minute // between two looks; the first one comes after a pause, so that no start is slower
	reconcileDays  = 8                // whose attempts are compared with journals: a day more than the log is kept
)

// startReconcile compares the books every day. What is unexplained is kept with the report, counted and logged.
func (s *Server) startReconcile() error {
	unexplained := prometheus.NewGauge(prometheus.GaugeOpts{Name: "millrace_reconcile_unexplained",
		Help: "1 while the last comparison of engines, events and books, by whomever, has a difference that nothing explains."})
	if err := s.metrics.Register(unexplained); err != nil {
		return err
	}
	s.life.run("daily reconcile", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(reconcileLook):
			}
			due, sound, err := s.reconcileDue(ctx)
			if err == nil && due {
				sound, err = s.reconcileOnce(ctx)
			}
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				slog.Warn("the books are not compared for now", "cause", err)
			case sound:
				unexplained.Set(0)
			default:
				unexplained.Set(1)
			}
		}
	})
	return nil
}

// reconcileDue reports whether a comparison is due, and whether the last one, by whomever, found nothing.
func (s *Server) reconcileDue(ctx context.Context) (due, sound bool, err error) {
	err = s.cfg.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		last, err := q.New(tx).ReportLastReconcile(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			due, sound = true, true
			return nil
		}
		due, sound = err == nil && s.cfg.Clock.Now().Sub(last.At) >= reconcileEvery, !last.Unexplained
		return err
	})
	return due, sound, err
}

func (s *Server) reconcileOnce(ctx context.Context) (sound bool, err error) {
	report, err := reconcile.Run(ctx, reconcile.Config{DB: s.cfg.DB, Bus: s.cfg.Bus, Clock: s.cfg.Clock,
		Since: s.cfg.Clock.Now().AddDate(0, 0, -reconcileDays)})
	if err == nil && report.Unexplained {
		slog.Error("the books do not agree: see the report on the operator's page or run millrace reconcile", "tokens", report.UnexplainedTokens,
			"usd", report.UnexplainedNano.String())
	}
	return err == nil && !report.Unexplained, err
}
