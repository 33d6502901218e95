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
		Help: "1 while the last daily comparison of engines, events and books by this process has a difference that nothing explains."})
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
			due, err := s.reconcileDue(ctx)
			if err == nil && due {
				var sound bool
				if sound, err = s.reconcileOnce(ctx); err == nil && sound {
					unexplained.Set(0)
				} else if err == nil {
					unexplained.Set(1)
				}
			}
			if err != nil && ctx.Err() == nil {
				slog.Warn("the books are not compared for now", "cause", err)
			}
		}
	})
	return nil
}

func (s *Server) reconcileDue(ctx context.Context) (due bool, err error) {
	err = s.cfg.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		last, err := q.New(tx).ReportLastReconcile(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			due = true
			return nil
		}
		due = err == nil && s.cfg.Clock.Now().Sub(last.At) >= reconcileEvery
		return err
	})
	return due, err
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
