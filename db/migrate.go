package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"millrace/migrations"
)

// migrationLock is the advisory lock that lets one process at a time change the schema. Any constant would do.
const migrationLock = 0x6d696c6c72616365 // "millrace"

// Migrate brings the schema up to date. Processes that start at once wait for one another; ctx bounds the wait. It fails
// on a database whose schema is newer than this program.
func (d *DB) Migrate(ctx context.Context) error { return d.migrate(ctx, migrations.FS) }

func (d *DB) migrate(ctx context.Context, files fs.FS) error {
	cfg := d.pool.Config().ConnConfig
	delete(cfg.RuntimeParams, "statement_timeout") // an index over a large table takes what it takes
	delete(cfg.RuntimeParams, "idle_in_transaction_session_timeout")
	lock, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer lock.Close(context.WithoutCancel(ctx)) // ends the session and with it the lock
	if _, err := lock.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("migrate: waiting for another process: %w", err)
	}
	sdb := stdlib.OpenDB(*cfg)
	defer sdb.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, sdb, files, goose.WithDisableGlobalRegistry(true))
	if errors.Is(err, goose.ErrNoMigrations) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if current > target {
		return fmt.Errorf("migrate: the database has schema version %d, this program knows %d: run a newer one", current, target)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
