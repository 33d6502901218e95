package batch_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/internal/fault"
	"millrace/serving/batch"
)

// begin begins an upload of the world's owner.
func (w *world) begin(name string) *batch.Upload {
	w.t.Helper()
	u, err := w.store.Begin(w.t.Context(), w.owner, batch.Input, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

// totals are what is counted of an organization, and what there is.
func (w *world) totals() (files, bytes, chunks int64) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(w.t.Context(), `SELECT files, bytes, (SELECT coalesce(sum(length(body)), 0) FROM file_chunks c WHERE c.org_id = t.org_id) FROM file_totals t WHERE org_id = $1`,
			w.owner.Org).Scan(&files, &bytes, &chunks)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return files, bytes, chunks
}

func TestFilesComeBackAsTheyWereSent(t *testing.T) {
	w := newWorld(t)
	for name, text := range map[string][]byte{
		"one byte":            {0},
		"a chunk":             bytes.Repeat([]byte("x"), batch.ChunkBytes),
		"a byte above":        bytes.Repeat([]byte("y"), batch.ChunkBytes+1),
		"no text":             {0xff, 0xfe, 0, '\r', '\n'},
		"chunks and a rest":   bytes.Repeat([]byte("0123456789"), batch.ChunkBytes/4),
		"written in two goes": []byte("ab"),
	} {
		u := w.begin("a.jsonl")
		half := len(text) / 2
		for _, part := range [][]byte{text[:half], text[half:]} {
			if _, err := u.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		f, err := u.Finish(time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(w.store.Open(t.Context(), f))
		if err != nil || !bytes.Equal(got, text) || f.Bytes != int64(len(text)) || !f.ExpiresAt.Equal(f.CreatedAt.Add(time.Hour)) {
			t.Errorf("%s: %v, %d bytes of %d, %+v", name, err, len(got), len(text), f)
		}
	}
	if files, counted, stored := w.totals(); files != 6 || counted != stored {
		t.Errorf("%d files, %d bytes counted, %d stored", files, counted, stored)
	}
}

func TestNamesAreNames(t *testing.T) {
	w := newWorld(t)
	for given, want := range map[string]string{
		"a.jsonl": "a.jsonl", "../../etc/passwd": "passwd", `C:\dir\b.jsonl`: "b.jsonl", "": "file", "..": "file", "/": "file",
		"a\x00b\nc\x1b[1m": "abc[1m", "\xff\xfe": "file", strings.Repeat("ü", 200): strings.Repeat("ü", 127), "x\u202ey": "xy",
	} {
		u := w.begin(given)
		if _, err := u.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if f, err := u.Finish(time.Hour); err != nil || f.Filename != want {
			t.Errorf("%q became %q (%v), want %q", given, f.Filename, err, want)
		}
	}
}

func TestLimitsOfFiles(t *testing.T) {
	w := newWorld(t)
	u := w.begin("empty")
	if _, err := u.Finish(time.Hour); fault.Of(err).Code != "empty_file" {
		t.Errorf("an empty file: %v", err)
	}
	u.Abort()
	u = w.begin("large")
	piece := make([]byte, batch.ChunkBytes)
	for range batch.MaxFileBytes / batch.ChunkBytes {
		if _, err := u.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.Write([]byte{1}); !fault.Is(err, fault.TooLarge) {
		t.Errorf("a byte above the limit: %v", err)
	}
	u.Abort()
	if files, counted, stored := w.totals(); files != 0 || counted != 0 || stored != 0 {
		t.Errorf("what was given up stays: %d files, %d bytes, %d stored", files, counted, stored)
	}
	w.exec(`UPDATE file_totals SET bytes = $1`, int64(batch.MaxOrgBytes-10))
	u = w.begin("the last ten")
	if _, err := u.Write(make([]byte, 11)); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Finish(time.Hour); fault.Of(err).Code != "storage_limit_exceeded" {
		t.Errorf("above the organization's room: %v", err)
	}
	u.Abort()
	w.exec(`UPDATE file_totals SET files = $1`, int64(batch.MaxOrgFiles))
	if _, err := w.store.Begin(t.Context(), w.owner, batch.Input, "one more"); fault.Of(err).Code != "storage_limit_exceeded" {
		t.Errorf("one file too many: %v", err)
	}
}

// Nobody sees what is another project's or another organization's, or not whole yet.
func TestFilesAndBatchesAreAProjects(t *testing.T) {
	w := newWorld(t)
	f := w.upload(requests(1))
	b := w.create(requests(1))
	half := w.begin("half")
	project, err := w.people.CreateProject(t.Context(), w.root, w.owner.Org, "Second")
	if err != nil {
		t.Fatal(err)
	}
	for name, who := range map[string]batch.Owner{"another project": w.member(w.owner.Org, project.ID), "another organization": w.customer("Other")} {
		if _, err := w.store.File(t.Context(), who, f.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s sees the file: %v", name, err)
		}
		if err := w.store.Delete(t.Context(), who, f.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s deletes the file: %v", name, err)
		}
		if _, err := w.store.Batch(t.Context(), who, b.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s sees the batch: %v", name, err)
		}
		if _, err := w.store.Cancel(t.Context(), who, b.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s cancels the batch: %v", name, err)
		}
		if _, err := w.store.Create(t.Context(), who, batch.NewBatch{Input: f.ID, Endpoint: "/v1/chat/completions", Window: "24h"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s makes a batch of the file: %v", name, err)
		}
		files, _, err := w.store.Files(t.Context(), who, batch.Page{Limit: 10})
		batches, _, err2 := w.store.Batches(t.Context(), who, batch.Page{Limit: 10})
		if err != nil || err2 != nil || len(files)+len(batches) != 0 {
			t.Errorf("%s lists %d files and %d batches", name, len(files), len(batches))
		}
	}
	// A member of the same project, with another key, sees both; nobody the half file.
	mate := w.member(w.owner.Org, w.owner.Project)
	files, _, err := w.store.Files(t.Context(), mate, batch.Page{Limit: 10})
	if _, err2 := w.store.Batch(t.Context(), mate, b.ID); err != nil || err2 != nil || len(files) != 2 {
		t.Errorf("%v %v %d", err, err2, len(files))
	}
	half.Abort()
}

func TestListsHavePages(t *testing.T) {
	w := newWorld(t)
	var all []batch.File
	for range 5 {
		all = append(all, w.upload("x"))
	}
	var got []batch.File
	p := batch.Page{Limit: 2, Purpose: batch.Input}
	for more := true; more; {
		var page []batch.File
		var err error
		if page, more, err = w.store.Files(t.Context(), w.owner, p); err != nil {
			t.Fatal(err)
		}
		got = append(got, page...)
		p.After = page[len(page)-1].ID
	}
	for i, f := range got {
		if len(got) != 5 || f.ID != all[4-i].ID {
			t.Fatalf("%d files, number %d is %s", len(got), i, f.ID)
		}
	}
	up, more, err := w.store.Files(t.Context(), w.owner, batch.Page{Limit: 2, After: all[1].ID, Ascending: true})
	if err != nil || !more || up[0].ID != all[2].ID {
		t.Errorf("%v %v %+v", err, more, up)
	}
	if none, _, err := w.store.Files(t.Context(), w.owner, batch.Page{Limit: 2, Purpose: batch.Output}); err != nil || len(none) != 0 {
		t.Errorf("%v %+v", err, none)
	}
}

// Sweeping takes what is past its end and what was given up, but not what a batch needs.
func TestSweeps(t *testing.T) {
	w := newWorld(t)
	w.begin("given up")
	old := w.upload("x")
	b := w.create(requests(2))
	w.clock.Advance(batch.MaxExpiry)
	if _, err := w.store.File(t.Context(), w.owner, old.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("a file past its end is there: %v", err)
	}
	if err := w.store.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if files, counted, stored := w.totals(); files != 1 || counted != stored || counted != int64(len(requests(2))) {
		t.Errorf("%d files, %d bytes counted, %d stored", files, counted, stored)
	}
	w.exec(`UPDATE batches SET status = 'completed'`)
	w.clock.Advance(90 * 24 * time.Hour)
	if err := w.store.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if files, counted, stored := w.totals(); files != 0 || counted != 0 || stored != 0 {
		t.Errorf("%d files, %d bytes counted, %d stored", files, counted, stored)
	}
	if _, err := w.store.Batch(t.Context(), w.owner, b.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("an old batch is there: %v", err)
	}
}

// A file that a batch needs stays; one that is deleted while it is read does not look whole.
func TestDeletingFiles(t *testing.T) {
	w := newWorld(t)
	b := w.create(requests(1))
	if err := w.store.Delete(t.Context(), w.owner, b.InputFileID); fault.Of(err).Code != "file_in_use" {
		t.Errorf("deleted under its batch: %v", err)
	}
	f := w.upload(strings.Repeat("x", 2*batch.ChunkBytes))
	content := w.store.Open(t.Context(), f)
	if _, err := io.ReadFull(content, make([]byte, batch.ChunkBytes)); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Delete(t.Context(), w.owner, f.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(content); err == nil {
		t.Error("half a file looks whole")
	}
	if err := w.store.Delete(t.Context(), w.owner, f.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("deleted twice: %v", err)
	}
}
