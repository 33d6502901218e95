package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"millrace/internal/fault"
	"millrace/tenants"
)

const (
	// PartRows is how many rows a file of a folder has at least, but for the last: what is done again after a crash.
	PartRows = 1_000_000
	// ManifestFile is the folder's manifest. It names complete files only.
	ManifestFile = "manifest.json"
	folderMode   = 0o700
	fileMode     = 0o600
)

// Progress is how far an export into a folder is.
type Progress struct {
	Rows int64     // in the folder
	At   time.Time // the day that is being read
}

// Folder writes files of at least partRows rows (0 = PartRows) and a manifest into dir. A folder that an export of the same
// question was broken off in is gone on with, behind its last complete file; one that is complete is left as it is.
func (s *Service) Folder(ctx context.Context, by tenants.Actor, in Query, f Format, dir string, partRows int64, tell func(Progress)) (Manifest, error) {
	if partRows <= 0 {
		partRows = PartRows
	}
	m, err := openFolder(in, f, dir)
	if err != nil || m.Complete {
		return m, err
	}
	d := &folder{dir: dir, m: m, in: in, f: f, partRows: partRows, total: newTally(m.Columns)}
	if err := d.total.resume(m.Parts); err != nil {
		return m, err
	}
	if n := len(m.Parts); n > 0 {
		in.After = m.Parts[n-1].Next
	}
	err = s.read(ctx, by, in, func(at time.Time, p page) error {
		if err := d.write(at, p); err != nil {
			return err
		}
		tell(Progress{Rows: d.total.rows, At: p.last.Day})
		return nil
	})
	if err == nil {
		d.m.Complete = true
		err = d.end(true)
	}
	return d.m, errors.Join(err, d.abandon())
}

// openFolder reads the manifest of a folder, or makes a new one. A folder of another question is refused.
func openFolder(in Query, f Format, dir string) (Manifest, error) {
	m := newManifest(in, f)
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return m, err
	}
	b, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, nil
	case err != nil:
		return m, err
	}
	var was Manifest
	if err := json.Unmarshal(b, &was); err != nil {
		return m, fmt.Errorf("export: %s: %w", filepath.Join(dir, ManifestFile), err)
	}
	same := was.Kind == m.Kind && was.Format == m.Format && was.Org == m.Org && was.From.Equal(m.From) && was.To.Equal(m.To) &&
		slices.EqualFunc(was.Columns, m.Columns, func(a, b Column) bool { return a.Name == b.Name && a.Type == b.Type })
	if !same {
		return m, fault.New(fault.Conflict, "%s holds another export (%s as %s, %s to %s). Choose another folder.", dir, was.Kind, was.Format,
			was.From.Format(time.RFC3339), was.To.Format(time.RFC3339))
	}
	was.Columns = m.Columns // with what JSON does not carry
	return was, nil
}

// folder is one run of an export into a folder.
type folder struct {
	dir      string
	m        Manifest
	in       Query
	f        Format
	partRows int64
	total    *tally
	open     *file
	disk     *os.File
}

func (d *folder) name() string { return fmt.Sprintf("%s-%05d.%s", d.in.Kind, len(d.m.Parts)+1, d.f) }

func (d *folder) write(at time.Time, p page) (err error) {
	if d.open == nil {
		if d.disk, err = os.OpenFile(filepath.Join(d.dir, d.name()), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode); err != nil {
			return err
		}
		if d.open, err = newFile(d.disk, d.in.Kind, d.f); err != nil {
			return err
		}
		d.open.part.File, d.open.part.Snapshot = d.name(), at
	}
	if err := d.open.write(p); err != nil {
		return err
	}
	for _, cells := range p.rows {
		if err := d.total.add(cells); err != nil {
			return err
		}
	}
	if d.open.tally.rows < d.partRows {
		return nil
	}
	return d.end(false)
}

// end completes the open file and puts it into the manifest. The last of an export that found nothing is an empty file: a
// header says more than no file.
func (d *folder) end(last bool) error {
	if d.open == nil && last && len(d.m.Parts) == 0 {
		if err := d.write(time.Time{}, page{}); err != nil {
			return err
		}
	}
	if d.open != nil {
		if err := d.open.close(); err != nil {
			return err
		}
		if err := errors.Join(d.disk.Sync(), d.disk.Close()); err != nil {
			return err
		}
		d.m.Parts = append(d.m.Parts, d.open.part)
		d.open, d.disk = nil, nil
	}
	d.m.Total = d.total.count()
	return d.save()
}

// save replaces the manifest: a reader sees the old one or the new one.
func (d *folder) save() error {
	b, err := json.MarshalIndent(d.m, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(d.dir, ManifestFile)
	if err := os.WriteFile(path+".new", append(b, '\n'), fileMode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// abandon closes and removes a file that was not completed.
func (d *folder) abandon() error {
	if d.disk == nil {
		return nil
	}
	return errors.Join(d.disk.Close(), os.Remove(d.disk.Name()))
}
