package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// txAttempts is how often a transaction that collided is run in all.
	txAttempts = 5
	// retryPause is the longest pause before the second attempt; it doubles with each.
	retryPause = 5 * time.Millisecond
	// acquireTimeout bounds the wait for a free connection, or for the database to come back.
	acquireTimeout = 10 * time.Second
	// rollbackTimeout bounds the rollback of a transaction whose own context has ended.
	rollbackTimeout = 5 * time.Second
)

// InTx runs fn in one transaction of the scope and commits when fn returns nil. It costs one round trip to begin and one
// to commit. A transaction that collided with another (Retryable) is run again, up to five times in all: fn may
// therefore run several times and must have no effect outside tx. fn's own error comes back as it is; a panic rolls
// back. A statement that ctx ended carries ctx's error. When the database cannot be reached the error is a fault of kind Unavailable.
//
// A commit whose connection broke has an unknown outcome and is never repeated here: only the caller's keys can tell.
func (d *DB) InTx(ctx context.Context, s Scope, fn func(tx pgx.Tx) error) error {
	if s.role == "" {
		return errors.New("db.InTx: scope must come from db.Org or db.System")
	}
	pause := retryPause
	for attempt := 1; ; attempt++ {
		err := d.once(ctx, s, fn)
		if err == nil || attempt == txAttempts || !Retryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(pause)):
		}
		pause *= 2
	}
}

// once is one attempt.
func (d *DB) once(ctx context.Context, s Scope, fn func(tx pgx.Tx) error) (err error) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.begin()})
	if err != nil {
		return away(fmt.Errorf("begin: %w", err))
	}
	committed := false
	defer func() {
		if !committed { // fn failed or panicked
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			_ = tx.Rollback(ctx) // a failed rollback closes the connection, which rolls back too
		}
	}()
	if err := fn(tx); err != nil {
		return cancelled(ctx, err)
	}
	committed = true
	if err := tx.Commit(ctx); err != nil {
		return away(fmt.Errorf("commit: %w", err))
	}
	return nil
}

// acquire takes a connection, with a bound of its own on the wait. A database that is away or too busy is Unavailable.
func (d *DB) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	wait, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := d.pool.Acquire(wait)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return nil, unavailable(err)
}
