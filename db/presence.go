package db

import (
	"context"
	"errors"
	"fmt"
)

// presenceLock is the advisory lock of processes that serve from this database.
const presenceLock = 7_034_618_271

// ErrNotAlone says that other processes serve from the database: they must share a bus.
var ErrNotAlone = errors.New("another Millrace process serves from this database: give every one the same NATS_URL")

// Presence says that this process serves from the database until release is called or the process ends. alone claims
// that it is the only one, because its bus is its own; then it fails with ErrNotAlone while there is another, and every
// later one fails too.
func (d *DB) Presence(ctx context.Context, alone bool) (release func(), err error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	try := "select pg_try_advisory_lock_shared($1)"
	if alone {
		try = "select pg_try_advisory_lock($1)"
	}
	var got bool
	if err := conn.QueryRow(ctx, try, int64(presenceLock)).Scan(&got); err != nil {
		conn.Release()
		return nil, fmt.Errorf("database: %w", err)
	}
	if !got {
		conn.Release()
		return nil, ErrNotAlone
	}
	// The lock belongs to the connection: it ends with it, so it is never given back to the pool.
	raw := conn.Hijack()
	return func() { _ = raw.Close(context.WithoutCancel(ctx)) }, nil
}
