// Package db is the only door to PostgreSQL: a transaction in which one organization's rows are visible, or all of them to
// the system. The pool is not exported, so no query can run outside InTx and no code can forget to say for whom it asks.
//
// It owns connections, roles and the organization setting, retries of serialization failures, and migrations. It does not
// own any table's meaning: SQL lives in db/query (sqlc, package q) and with the domain that owns it.
//
// Invariants: the login role is not a superuser; app transactions see rows of their organization only, and none when no
// organization is set; role and organization end with the transaction.
package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Limits.
const (
	connectTimeout   = 5 * time.Second
	statementTimeout = 30 * time.Second // of one statement; a longer job sets its own inside the transaction
	beginTimeout     = 10 * time.Second // to get a connection from the pool
	maxTries         = 5                // of a transaction that lost a race
	defaultMaxConns  = 24
)

// Options tune a pool. The zero value is what a server wants.
type Options struct {
	MaxConns int32 // 0 = 24
	// AllowSuperuser accepts a superuser login; tests of the server itself only.
	AllowSuperuser bool
}

// DB is a pool of connections. It is safe for concurrent use.
type DB struct {
	pool *pgxpool.Pool
}

// Scope says for whom a transaction works.
type Scope struct {
	begin string
}

// Org is one organization: row-level security shows its rows only.
func Org(id ids.ID) Scope {
	return Scope{begin: "begin; set local role millrace_app; select set_config('millrace.org', '" + id.String() + "', true)"}
}

// System sees every organization: rater, workers, operators' pages.
func System() Scope { return Scope{begin: "begin; set local role millrace_system"} }

// Snapshot makes the scope's transaction read one consistent state of the whole database.
func (s Scope) Snapshot() Scope {
	s.begin = "begin isolation level repeatable read" + s.begin[len("begin"):]
	return s
}

// Open connects as the schema's owner. It refuses a superuser, who would see every row whatever the policies say.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database URL cannot be read: want postgres://user:password@host:port/name")
	}
	cfg.MaxConns = defaultMaxConns
	if o.MaxConns > 0 {
		cfg.MaxConns = o.MaxConns
	}
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	cfg.ConnConfig.RuntimeParams["application_name"] = "millrace"
	cfg.ConnConfig.RuntimeParams["statement_timeout"] = fmt.Sprint(statementTimeout.Milliseconds())
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = fmt.Sprint((2 * statementTimeout).Milliseconds())
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	d := &DB{pool: pool}
	if err := d.check(ctx, o); err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

func (d *DB) check(ctx context.Context, o Options) error {
	var super bool
	var version int
	err := d.pool.QueryRow(ctx, "select rolsuper or rolbypassrls, current_setting('server_version_num')::int from pg_roles where rolname = current_user").Scan(&super, &version)
	switch {
	case err != nil:
		return fmt.Errorf("database: %w", err)
	case version < 150000:
		return fmt.Errorf("database: PostgreSQL %d is too old, 15 or newer is needed", version/10000)
	case super && !o.AllowSuperuser:
		return errors.New("database: the login role is a superuser (or bypasses row security): give Millrace a plain role with CREATEROLE that owns its database")
	}
	return nil
}

// Close ends every connection.
func (d *DB) Close() { d.pool.Close() }

// Ping makes a round trip.
func (d *DB) Ping(ctx context.Context) error { return d.pool.Ping(ctx) }

// InTx runs fn in a transaction of the scope and commits when fn returns nil. A transaction that lost a race
// (serialization failure, deadlock) is run again, so fn must not keep effects outside the transaction. An unreachable
// database is a fault of kind Unavailable.
func (d *DB) InTx(ctx context.Context, s Scope, fn func(tx pgx.Tx) error) error {
	var err error
	for try := range maxTries {
		if err = d.once(ctx, s, fn); err == nil || !Retryable(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try+1) * 3 * time.Millisecond):
		}
	}
	return err
}

func (d *DB) once(ctx context.Context, s Scope, fn func(tx pgx.Tx) error) error {
	if s.begin == "" {
		return errors.New("db: InTx needs a scope: db.Org or db.System")
	}
	acquire, cancel := context.WithTimeout(ctx, beginTimeout)
	conn, err := d.pool.Acquire(acquire)
	cancel()
	if err != nil {
		return away(err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.begin})
	if err != nil {
		return away(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // no effect after a commit
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return away(err)
	}
	return nil
}

// away marks errors that say the database cannot be reached, so that callers can tell them from refusals.
func away(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && !Away(err) {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, "The service is starting or its database is away. Please retry shortly.")
}

// Away reports whether err means that the database could not be reached (or is shutting down), not that it said no.
func Away(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code[:2] == "57" || pg.Code[:2] == "08" || pg.Code == "53300"
	}
	var connect *pgconn.ConnectError
	return fault.Is(err, fault.Unavailable) || errors.As(err, &connect) || pgconn.SafeToRetry(err)
}

// Retryable reports whether err is a lost race that running the transaction again can win.
func Retryable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}
