package batch

import (
	"context"
	"errors"
	"math"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Purposes of files.
const (
	Input  = "batch"
	Output = "batch_output"
)

// File is a file that is whole.
type File q.File

// Owner is whose files and batches are meant: one project's. Key is who asks.
type Owner struct {
	Org, Project, Key ids.ID
}

// Store keeps files and batches.
type Store struct {
	db        *db.DB
	clock     clock.Clock
	endpoints Endpoints
	made      chan struct{} // a batch was made: the runner beside this store need not wait for its poll
}

// New makes a store. Batches can be made for the given endpoints.
func New(d *db.DB, c clock.Clock, e Endpoints) *Store {
	return &Store{db: d, clock: c, endpoints: e, made: make(chan struct{}, 1)}
}

// now is the time as the database keeps it.
func (s *Store) now() time.Time { return s.clock.Now().UTC().Truncate(time.Microsecond) }

func (s *Store) in(ctx context.Context, org ids.ID, fn func(rows *q.Queries) error) error {
	return s.db.InTx(ctx, db.Org(org), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}

func noFile(id ids.ID) error {
	return fault.New(fault.NotFound, "There is no file %s.", FormatFile(id)).WithCode("file_not_found").WithParam("file_id")
}

// File gives one file.
func (s *Store) File(ctx context.Context, o Owner, id ids.ID) (f File, err error) {
	err = s.in(ctx, o.Org, func(rows *q.Queries) error {
		row, err := rows.GetFile(ctx, q.GetFileParams{OrgID: o.Org, ProjectID: o.Project, ID: id, Now: s.now()})
		f = File(row)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = noFile(id)
	}
	return f, err
}

// Page says which part of a list is wanted.
type Page struct {
	Limit     int
	After     ids.ID // the last one of the page before; Nil = from the beginning
	Ascending bool   // by creation; batches are listed newest first only
	Purpose   string // of files; "" = any
}

func (p *Page) after() *ids.ID {
	if p.After == ids.Nil {
		return nil
	}
	return &p.After
}

// Files lists files; more says that there are further ones.
func (s *Store) Files(ctx context.Context, o Owner, p Page) (list []File, more bool, err error) {
	err = s.in(ctx, o.Org, func(rows *q.Queries) error {
		found, err := rows.ListFiles(ctx, q.ListFilesParams{OrgID: o.Org, ProjectID: o.Project, Now: s.now(), Purpose: p.Purpose,
			After: p.after(), Ascending: p.Ascending, MaxRows: int32(p.Limit + 1)})
		list, more = nil, len(found) > p.Limit
		for _, row := range found[:min(len(found), p.Limit)] {
			list = append(list, File(row))
		}
		return err
	})
	return list, more, err
}

// Delete removes a file at once, unless a batch needs it.
func (s *Store) Delete(ctx context.Context, o Owner, id ids.ID) error {
	if _, err := s.File(ctx, o, id); err != nil {
		return err
	}
	return s.in(ctx, o.Org, func(rows *q.Queries) error {
		if _, err := rows.LockFile(ctx, q.LockFileParams{OrgID: o.Org, ID: id}); errors.Is(err, pgx.ErrNoRows) {
			return noFile(id)
		} else if err != nil {
			return err
		}
		used, err := rows.FileInUse(ctx, q.FileInUseParams{OrgID: o.Org, FileID: id})
		switch {
		case err != nil:
			return err
		case used:
			return fault.New(fault.Conflict, "A batch that has not ended needs this file. Cancel the batch first.").WithCode("file_in_use")
		}
		return remove(ctx, rows, o.Org, id)
	})
}

// remove deletes a file with its chunks, and what it took of the organization's room.
func remove(ctx context.Context, rows *q.Queries, org, id ids.ID) error {
	bytes, err := rows.FileBytes(ctx, q.FileBytesParams{OrgID: org, FileID: id})
	if err != nil {
		return err
	}
	deleted, err := rows.DeleteFile(ctx, q.DeleteFileParams{OrgID: org, ID: id})
	if err != nil || deleted == 0 {
		return err
	}
	_, err = rows.AddToFileTotals(ctx, q.AddToFileTotalsParams{OrgID: org, Files: -1, Bytes: -bytes, MaxFiles: math.MaxInt64, MaxBytes: math.MaxInt64})
	return err
}

// cleanName makes a file's name of what a client says: no path, nothing that a terminal or a header would act upon.
func cleanName(name string) string {
	name = strings.ToValidUTF8(name, "")
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, name)
	for len(name) > maxName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	if name == "" || name == "." || name == ".." || name == "/" {
		return "file"
	}
	return name
}
