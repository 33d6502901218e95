package batch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
)

// Content reads a file from its start, a chunk at a time. One goroutine.
type Content struct {
	store     *Store
	ctx       context.Context
	org, file ids.ID
	left      int64 // bytes not read from the database yet
	n         int32
	chunk     []byte
}

// Open reads a file.
func (s *Store) Open(ctx context.Context, f File) *Content {
	return &Content{store: s, ctx: ctx, org: f.OrgID, file: f.ID, left: f.Bytes}
}

// Read implements io.Reader. A file that was deleted meanwhile is an error, not a shorter file.
func (c *Content) Read(p []byte) (int, error) {
	if len(c.chunk) == 0 {
		if c.left == 0 {
			return 0, io.EOF
		}
		chunk, err := c.store.part(c.ctx, c.org, c.file, c.n, 0, ChunkBytes)
		if err != nil {
			return 0, err
		}
		c.chunk = chunk
		c.left -= int64(len(chunk))
		c.n++
	}
	n := copy(p, c.chunk)
	c.chunk = c.chunk[n:]
	return n, nil
}

// part reads a part of one chunk.
func (s *Store) part(ctx context.Context, org, file ids.ID, n, from, most int32) (body []byte, err error) {
	err = s.db.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		body, err = q.New(tx).ReadFileChunk(ctx, q.ReadFileChunkParams{OrgID: org, FileID: file, N: n, FromByte: from + 1, MaxBytes: most})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) || err == nil && len(body) == 0 {
		err = fmt.Errorf("batch: chunk %d of file %s is gone", n, file)
	}
	return body, err
}

// span reads size bytes of a file from start.
func (s *Store) span(ctx context.Context, org, file ids.ID, start int64, size int32) ([]byte, error) {
	out := make([]byte, 0, size)
	for int32(len(out)) < size {
		at := start + int64(len(out))
		from := int32(at % ChunkBytes)
		part, err := s.part(ctx, org, file, int32(at/ChunkBytes), from, min(size-int32(len(out)), ChunkBytes-from))
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}
