package export

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"time"

	"millrace/tenants"
)

// bufferBytes are written at once.
const bufferBytes = 64 << 10

// FileName is what a download is called.
func (in Query) FileName(f Format) string {
	return string(in.Kind) + "-" + in.From.UTC().Format(time.DateOnly) + "-" + in.To.UTC().Add(-time.Nanosecond).Format(time.DateOnly) + "." + string(f)
}

// Write writes one file to w and tells what it wrote. After an error w holds a part of the file, which is worth nothing.
func (s *Service) Write(ctx context.Context, by tenants.Actor, in Query, f Format, w io.Writer) (Manifest, error) {
	m := newManifest(in, f)
	file, err := newFile(w, in.Kind, f)
	if err != nil {
		return m, err
	}
	err = s.read(ctx, by, in, func(at time.Time, p page) error {
		file.part.Snapshot = at
		return file.write(p)
	})
	if err != nil {
		return m, err
	}
	if err := file.close(); err != nil {
		return m, err
	}
	file.part.File = in.FileName(f)
	if file.part.Next.IsZero() {
		file.part.Next = in.After
	}
	m.Complete, m.Total, m.Parts = true, file.part.Count, []Part{file.part}
	return m, nil
}

// file writes rows, counts and hashes.
type file struct {
	part  Part
	tally *tally
	enc   encoder
	out   *bufio.Writer
	hash  hash.Hash
	bytes counter
}

type counter struct{ n int64 }

func (c *counter) Write(b []byte) (int, error) { c.n += int64(len(b)); return len(b), nil }

func newFile(w io.Writer, kind Kind, f Format) (_ *file, err error) {
	x := &file{tally: newTally(columnsOf(kind)), hash: sha256.New()}
	x.out = bufio.NewWriterSize(io.MultiWriter(w, x.hash, &x.bytes), bufferBytes)
	x.enc, err = newEncoder(f, x.out, kind, columnsOf(kind))
	return x, err
}

func (x *file) write(p page) error {
	for _, cells := range p.rows {
		if err := x.tally.add(cells); err != nil {
			return err
		}
		if err := x.enc.row(cells); err != nil {
			return err
		}
	}
	x.part.Next = p.last
	return nil
}

func (x *file) close() error {
	if err := x.enc.close(); err != nil {
		return err
	}
	if err := x.out.Flush(); err != nil {
		return err
	}
	x.part.Bytes, x.part.SHA256, x.part.Count = x.bytes.n, hex.EncodeToString(x.hash.Sum(nil)), x.tally.count()
	return nil
}
