// Package mailer sends the outbox by SMTP.
//
// It owns how mail leaves; what is written, and to whom, belongs to whoever puts it into the outbox (tenants, billing/alert,
// billing/topup). Without a mail server nothing is sent: the outbox page shows what waits.
//
// Invariants: a message is sent at least once and marked behind it; while one process tries a message no other does; mail
// from before a mail server was configured is not sent days later; passwords go over TLS, or to this machine, only.
package mailer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
)

// Limits.
const (
	turnEvery   = 2 * time.Second
	claimFor    = 5 * time.Minute // longer than a turn takes
	turnLimit   = 4 * time.Minute
	sendTimeout = 30 * time.Second // of one message
	perTurn     = 20
	maxAttempts = 10
	tooOld      = 24 * time.Hour
	firstPause  = 15 * time.Second
	maxPause    = time.Hour
	maxProblem  = 300 // bytes
)

// Mailer sends what waits in the outbox.
type Mailer struct {
	db     *db.DB
	clock  clock.Clock
	server Server
}

// New makes a mailer.
func New(d *db.DB, c clock.Clock, s Server) (*Mailer, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return &Mailer{db: d, clock: c, server: s}, nil
}

// Run sends until ctx ends.
func (m *Mailer) Run(ctx context.Context) error {
	tick := time.NewTicker(turnEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := m.Turn(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "mailer: mail waits", "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return ctx.Err()
}

// Turn tries what is due now, once each.
func (m *Mailer) Turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	now := m.clock.Now().UTC()
	var due []q.Outbox
	err := m.system(ctx, func(queries *q.Queries) (err error) {
		due, err = queries.ClaimMail(ctx, q.ClaimMailParams{Until: now.Add(claimFor), Now: now, NotBefore: now.Add(-tooOld), MaxAttempts: maxAttempts, MaxRows: perTurn})
		return err
	})
	if err != nil {
		return fmt.Errorf("mailer: what is due: %w", err)
	}
	var errs []error
	for _, row := range due {
		failure := m.server.send(ctx, row, now)
		if ctx.Err() != nil {
			return ctx.Err() // the claim ends by itself
		}
		errs = append(errs, failure, m.note(ctx, row, failure))
	}
	return errors.Join(errs...)
}

func (m *Mailer) note(ctx context.Context, row q.Outbox, failure error) error {
	now := m.clock.Now().UTC()
	return m.system(ctx, func(queries *q.Queries) error {
		if failure == nil {
			return queries.MailSent(ctx, q.MailSentParams{ID: row.ID, SentAt: &now})
		}
		pause := min(firstPause<<min(row.Attempts, maxAttempts), maxPause)
		return queries.MailFailed(ctx, q.MailFailedParams{ID: row.ID, NextAt: now.Add(pause), Problem: clip(failure.Error())})
	})
}

func (m *Mailer) system(ctx context.Context, fn func(queries *q.Queries) error) error {
	return m.db.InTx(ctx, db.System(), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}
