package batch

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Upload is a file being written. It is seen by nobody until Finish. One goroutine.
type Upload struct {
	store  *Store
	ctx    context.Context
	file   q.File
	chunk  []byte
	n      int32
	bytes  int64
	output bool // no limit holds: results are not lost for one
}

// Begin begins a file. End it by Finish or Abort.
func (s *Store) Begin(ctx context.Context, o Owner, purpose, name string) (*Upload, error) {
	u := &Upload{store: s, ctx: ctx, output: purpose == Output}
	now := s.now()
	err := s.in(ctx, o.Org, func(rows *q.Queries) (err error) {
		if u.file, err = rows.InsertFile(ctx, q.InsertFileParams{OrgID: o.Org, ID: ids.New(), ProjectID: o.Project, Purpose: purpose,
			Filename: cleanName(name), CreatedAt: now, ExpiresAt: now.Add(MaxExpiry)}); err != nil {
			return err
		}
		return u.count(rows, 1, 0)
	})
	return u, err
}

// count adds to what the organization stores.
func (u *Upload) count(rows *q.Queries, files, bytes int64) error {
	p := q.AddToFileTotalsParams{OrgID: u.file.OrgID, Files: files, Bytes: bytes, MaxFiles: MaxOrgFiles, MaxBytes: MaxOrgBytes}
	if u.output {
		p.MaxFiles, p.MaxBytes = math.MaxInt64, math.MaxInt64
	}
	counted, err := rows.AddToFileTotals(u.ctx, p)
	if err == nil && counted == 0 {
		return fault.New(fault.Invalid, "Your organization stores as much as it may: %d GiB in %d files. Delete files that you do not need.", MaxOrgBytes>>30, MaxOrgFiles).
			WithCode("storage_limit_exceeded").WithParam("file")
	}
	return err
}

// Write implements io.Writer.
func (u *Upload) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if u.chunk == nil {
			u.chunk = make([]byte, 0, ChunkBytes)
		}
		part := p[n:min(len(p), n+ChunkBytes-len(u.chunk))]
		u.chunk = append(u.chunk, part...)
		u.bytes += int64(len(part))
		n += len(part)
		if u.bytes > MaxFileBytes && !u.output {
			return n, TooLarge()
		}
		if len(u.chunk) == ChunkBytes {
			if err := u.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// TooLarge says that a file is above its limit.
func TooLarge() error {
	return fault.New(fault.TooLarge, "A file may have at most %d MiB. Split it.", MaxFileBytes>>20).WithParam("file")
}

func (u *Upload) flush() error {
	if len(u.chunk) == 0 {
		return nil
	}
	err := u.store.in(u.ctx, u.file.OrgID, func(rows *q.Queries) error {
		written, err := rows.InsertFileChunk(u.ctx, q.InsertFileChunkParams{OrgID: u.file.OrgID, FileID: u.file.ID, N: u.n, Body: u.chunk})
		if err != nil {
			return err
		}
		if written == 0 {
			return errors.New("batch: the file was swept while it was written")
		}
		return u.count(rows, 0, int64(len(u.chunk)))
	})
	u.n++
	u.chunk = u.chunk[:0]
	return err
}

// Finish makes the file seen. It expires after the given time, counted from its beginning.
func (u *Upload) Finish(expiry time.Duration) (File, error) {
	if u.bytes == 0 {
		return File{}, fault.New(fault.Invalid, "The file is empty.").WithCode("empty_file").WithParam("file")
	}
	if err := u.flush(); err != nil {
		return File{}, err
	}
	var f File
	err := u.store.in(u.ctx, u.file.OrgID, func(rows *q.Queries) (err error) {
		f, err = u.finish(rows, expiry)
		return err
	})
	return f, err
}

// finish is the last step of Finish, for who does more in the same transaction. Everything has been flushed.
func (u *Upload) finish(rows *q.Queries, expiry time.Duration) (File, error) {
	row, err := rows.FinishFile(u.ctx, q.FinishFileParams{OrgID: u.file.OrgID, ID: u.file.ID, Bytes: u.bytes, ExpiresAt: u.file.CreatedAt.Add(expiry)})
	return File(row), err
}

// abortTime bounds the removal of what was written; what is left is swept.
const abortTime = 5 * time.Second

// Abort removes what was written of a file that is not to be.
func (u *Upload) Abort() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTime)
	defer cancel()
	org := u.file.OrgID
	err := u.store.in(ctx, org, func(rows *q.Queries) error {
		f, err := rows.LockFile(ctx, q.LockFileParams{OrgID: org, ID: u.file.ID})
		if errors.Is(err, pgx.ErrNoRows) || err == nil && f.Ready {
			return nil
		}
		if err != nil {
			return err
		}
		return remove(ctx, rows, org, u.file.ID)
	})
	if err != nil {
		slog.WarnContext(ctx, "batch: a file that was given up stays until it is swept", "file", FormatFile(u.file.ID), "cause", err)
	}
}
