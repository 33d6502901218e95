package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"millrace/db"
	"millrace/migrations"
)

// template gives the database that carries this program's schema, making it first when no process has.
func (s *server) template(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, err := templateName(migrations.FS, time.Now())
	if err != nil || name == s.made {
		return name, err
	}
	making, err := lock(ctx, filepath.Join(s.dir, "template.lock"), unix.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer making.Close()
	var there bool
	if err := s.admin.QueryRow(ctx, "SELECT count(*) > 0 FROM pg_database WHERE datname = $1", name).Scan(&there); err != nil {
		return "", err
	}
	if !there {
		if err := s.makeTemplate(ctx, name); err != nil {
			return "", fmt.Errorf("make the template: %w", err)
		}
	}
	s.made = name
	return name, nil
}

// makeTemplate migrates a database aside and renames it when complete: a template is never half-made.
func (s *server) makeTemplate(ctx context.Context, name string) error {
	aside := name + "_making"
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + aside + " WITH (FORCE)", "CREATE DATABASE " + aside + " TEMPLATE template0"} {
		if _, err := s.admin.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := migrate(ctx, s.address(aside)); err != nil {
		return err
	}
	_, err := s.admin.Exec(ctx, "ALTER DATABASE "+aside+" RENAME TO "+name)
	return err
}

func migrate(ctx context.Context, url string) error {
	d, err := db.Open(ctx, url, db.Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return err
	}
	// Statistics, so that no copy begins with a planner that knows nothing.
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ANALYZE")
	return errors.Join(err, conn.Close(ctx))
}

// templateName changes with the migrations, and with the day: the schema makes partitions around the current one.
func templateName(files fs.FS, now time.Time) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, now.UTC().Format(time.DateOnly))
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		return err
	})
	return "tmpl_" + hex.EncodeToString(h.Sum(nil))[:16], err
}
