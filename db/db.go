// Package db is the one door to PostgreSQL: a pool that nobody else holds, transactions that run as one organization or
// as the system, and the migrations.
//
// It owns connections, roles and retries. It does not own what the tables mean: each room has its own query file in
// db/query, generated into db/q, and runs it inside InTx. The servers themselves are db/pg's.
//
// Invariants: every statement of the program runs in a transaction whose role is millrace_app (row-level security shows
// one organization) or millrace_system (all of them); a transaction without an organization sees no tenant row; the
// login role is never a superuser, because a superuser is above row-level security.
package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// defaultMaxConns leaves room for several processes on a server of 100 connections.
	defaultMaxConns = 24
	// connectTimeout bounds one connection attempt.
	connectTimeout = 5 * time.Second
	// defaultStatementTimeout ends a statement that nobody will wait for; Options and Scope can set another.
	defaultStatementTimeout = 30 * time.Second
	// idleTransactionTimeout ends the session of a transaction that was left open: it would hold its locks for ever.
	idleTransactionTimeout = 60 * time.Second
	// maxConnLifetime lets a load balancer in front of replicas even out.
	maxConnLifetime = 30 * time.Minute
	// cancelGrace is how long a cancelled statement may take to answer before its connection is dropped.
	cancelGrace = 2 * time.Second
	// minServerVersion is the oldest server whose SQL Millrace speaks, as server_version_num.
	minServerVersion = 150000
)

// Options of a pool. The zero value is right for a program.
type Options struct {
	MaxConns         int32         // 0 = 24
	StatementTimeout time.Duration // 0 = 30 s
	Name             string        // shown in pg_stat_activity; "" = millrace
	AllowSuperuser   bool          // tests only: row-level security does not hold for a superuser
}

// DB is a pool of connections.
type DB struct {
	pool *pgxpool.Pool
}

// Open connects and checks that the server and the login role are fit. It does not need the schema to be there yet.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	cfg, err := poolConfig(url, o)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	d := &DB{pool: pool}
	if err := d.checkServer(ctx, o.AllowSuperuser); err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

// poolConfig sets limits, session settings and types.
func poolConfig(url string, o Options) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The parser's message would repeat the URL, password included.
		return nil, errors.New("database: DATABASE_URL is not a valid PostgreSQL URL")
	}
	cfg.MaxConns = defaultMaxConns
	if o.MaxConns > 0 {
		cfg.MaxConns = o.MaxConns
	}
	cfg.MaxConnLifetime = maxConnLifetime
	cfg.MaxConnLifetimeJitter = maxConnLifetime / 10
	c := cfg.ConnConfig
	c.ConnectTimeout = connectTimeout
	timeout := defaultStatementTimeout
	if o.StatementTimeout > 0 {
		timeout = o.StatementTimeout
	}
	name := "millrace"
	if o.Name != "" {
		name = o.Name
	}
	c.RuntimeParams["application_name"] = name
	c.RuntimeParams["timezone"] = "UTC"
	c.RuntimeParams["statement_timeout"] = milliseconds(timeout)
	c.RuntimeParams["idle_in_transaction_session_timeout"] = milliseconds(idleTransactionTimeout)
	// A cancelled context asks the server to stop the statement, instead of dropping the connection and leaving the
	// statement running.
	c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelGrace}
	}
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID,
			Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
		registerIDs(conn.TypeMap())
		return nil
	}
	return cfg, nil
}

// checkServer refuses what would break an invariant later: an old server, a role above row-level security.
func (d *DB) checkServer(ctx context.Context, allowSuperuser bool) error {
	var version int
	var role string
	var above bool
	err := d.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, rolname::text, rolsuper OR rolbypassrls
		FROM pg_roles WHERE rolname = session_user`).Scan(&version, &role, &above)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if version < minServerVersion {
		return fmt.Errorf("database: server version %d.%d is too old: Millrace needs PostgreSQL 15 or newer", version/10000, version%10000)
	}
	if above && !allowSuperuser {
		return fmt.Errorf("database: role %q is a superuser or bypasses row-level security, so customers' data would not be kept apart: connect as an ordinary role that owns the database (CREATE ROLE millrace LOGIN CREATEROLE PASSWORD '…'; CREATE DATABASE millrace OWNER millrace)", role)
	}
	return nil
}

// Ping asks the server for a sign of life.
func (d *DB) Ping(ctx context.Context) error { return d.pool.Ping(ctx) }

// Stat is the state of the pool, for metrics.
func (d *DB) Stat() *pgxpool.Stat { return d.pool.Stat() }

// Close waits for transactions in flight and closes the connections.
func (d *DB) Close() { d.pool.Close() }

// milliseconds is how PostgreSQL settings take a duration.
func milliseconds(t time.Duration) string { return fmt.Sprint(t.Milliseconds()) }
