package batch

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"

	"millrace/db/q"
	"millrace/internal/fault"
)

// Problem is one thing that is wrong with an input file.
type Problem struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int32  `json:"line"`
}

// validator reads an input file once.
type validator struct {
	hold     *hold
	ids      map[[16]byte]bool // of the custom ids so far
	model    string
	problems []Problem
	total    int32
	// The first request that is wrong in itself, and its line.
	wrong     *fault.Fault
	wrongLine int32
	pending   q.InsertBatchLinesParams
}

// validate reads the input file and writes the batch's lines, or fails the batch with what is wrong.
func (h *hold) validate(ctx context.Context) error {
	b := &h.batch
	v := &validator{hold: h, ids: map[[16]byte]bool{},
		pending: q.InsertBatchLinesParams{OrgID: b.OrgID, BatchID: b.ID}}
	// Lines of an earlier try that was broken off.
	if err := h.write(ctx, func(rows *q.Queries, _ *q.Batch) error {
		return rows.DeleteBatchLines(ctx, q.DeleteBatchLinesParams{OrgID: b.OrgID, BatchID: b.ID})
	}); err != nil {
		return err
	}
	if err := v.read(ctx); err != nil {
		return err
	}
	return v.end(ctx)
}

func (v *validator) say(f *fault.Fault, n int32) {
	p := Problem{Code: f.Code, Message: f.Message}
	if f.Param != "" {
		p.Param = &f.Param
	}
	if n > 0 {
		p.Line = &n
	}
	v.problems = append(v.problems, p)
}

func (v *validator) read(ctx context.Context) error {
	h := v.hold
	var row q.File
	if err := h.runner.store.in(ctx, h.batch.OrgID, func(rows *q.Queries) (err error) {
		row, err = rows.LockFile(ctx, q.LockFileParams{OrgID: h.batch.OrgID, ID: h.batch.InputFileID})
		return err
	}); err != nil {
		return err
	}
	lines := newLineReader(h.runner.store.Open(ctx, File(row)))
	for len(v.problems) < maxErrors && h.cause() == nil {
		l, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return v.flush(ctx)
		case errors.Is(err, errLongLine):
			v.say(bad(codeTooLong, "", "This line has more than %d MiB. Nothing behind it was read.", MaxLineBytes>>20), l.n)
			return nil
		case err != nil:
			return err
		}
		if v.total++; v.total > MaxLines {
			v.say(bad(codeTooMany, "", "A batch may have at most %d requests. Split the file.", MaxLines), l.n)
			return nil
		}
		if f := v.line(&l); f != nil {
			v.say(f, l.n)
		}
		if len(v.pending.Numbers) == linesAtOnce {
			if err := v.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// line checks one line.
func (v *validator) line(l *line) *fault.Fault {
	r, f := readRequest(l.text, v.hold.endpoint.Path)
	if f != nil {
		return f
	}
	sum := sha256.Sum256([]byte(r.name))
	if key := [16]byte(sum[:]); v.ids[key] {
		return bad(codeTwice, "custom_id", "An earlier line has this custom_id, too.")
	} else {
		v.ids[key] = true
	}
	asked, own, f := r.decode(v.hold.endpoint)
	switch {
	case f != nil && own:
		if v.wrong == nil {
			v.wrong, v.wrongLine = f, l.n
		}
		v.add(l, &r)
		return nil
	case f != nil:
		return f
	}
	if v.model == "" {
		v.model = asked.Model
		if _, known := v.hold.runner.Models.Model(asked.Model); !known {
			return bad(codeNoModel, "body.model", "The model does not exist. GET /v1/models lists those that do.")
		}
	}
	if asked.Model != v.model {
		return bad(codeModel, "body.model", "All lines of a batch must ask for the same model.")
	}
	v.add(l, &r)
	return nil
}

func (v *validator) add(l *line, r *request) {
	p := &v.pending
	p.Numbers, p.CustomIds = append(p.Numbers, l.n), append(p.CustomIds, string(r.customID))
	p.Starts, p.Sizes = append(p.Starts, l.start), append(p.Sizes, int32(len(l.text)))
}

// flush writes the lines so far, unless the batch fails anyway.
func (v *validator) flush(ctx context.Context) error {
	p := v.pending
	v.pending = q.InsertBatchLinesParams{OrgID: p.OrgID, BatchID: p.BatchID}
	if len(p.Numbers) == 0 || len(v.problems) > 0 {
		return nil
	}
	return v.hold.write(ctx, func(rows *q.Queries, _ *q.Batch) error { return rows.InsertBatchLines(ctx, p) })
}

// end says how it went.
func (v *validator) end(ctx context.Context) error {
	h := v.hold
	if cause := h.cause(); cause != nil {
		return cause // cancelled, expired or stopped: there is nothing to say
	}
	switch {
	case len(v.problems) > 0:
	case v.total == 0:
		v.say(bad(codeEmpty, "", "The file has no requests."), 0)
	case v.model == "": // not one can run
		v.say(v.wrong, v.wrongLine)
	}
	if len(v.problems) > 0 {
		return h.fail(ctx, v.problems)
	}
	return h.write(ctx, func(rows *q.Queries, b *q.Batch) error {
		if b.Status != Validating {
			return nil // cancelled at this very moment
		}
		return rows.BeginBatch(ctx, q.BeginBatchParams{OrgID: b.OrgID, ID: b.ID, Model: v.model, Total: v.total, Now: h.runner.store.now()})
	})
}

// fail ends a batch of which nothing ran.
func (h *hold) fail(ctx context.Context, problems []Problem) error {
	text, err := json.Marshal(struct {
		Object string    `json:"object"`
		Data   []Problem `json:"data"`
	}{"list", problems})
	if err != nil {
		return err
	}
	list := string(text)
	return h.write(ctx, func(rows *q.Queries, b *q.Batch) error {
		if b.Status != Validating {
			return nil
		}
		if err := rows.DeleteBatchLines(ctx, q.DeleteBatchLinesParams{OrgID: b.OrgID, BatchID: b.ID}); err != nil {
			return err
		}
		return rows.FailBatch(ctx, q.FailBatchParams{OrgID: b.OrgID, ID: b.ID, Errors: &list, Now: h.runner.store.now()})
	})
}
