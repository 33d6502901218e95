package batch

import (
	"context"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
)

// finish writes the output files and ends the batch with them, all or nothing.
func (h *hold) finish(ctx context.Context) error {
	outcome := h.batch.Outcome
	var good, bad *Upload
	defer func() {
		for _, u := range []*Upload{good, bad} {
			if u != nil {
				u.Abort() // does nothing to a file that is finished
			}
		}
	}()
	var err error
	if h.batch.InProgressAt != nil { // else it ended before its lines were known
		if good, err = h.output(ctx, true, outcome); err != nil {
			return err
		}
		if bad, err = h.output(ctx, false, outcome); err != nil {
			return err
		}
	}
	err = h.write(ctx, func(rows *q.Queries, b *q.Batch) error {
		if b.Status != Finalizing && b.Status != Cancelling {
			return nil
		}
		end := q.EndBatchParams{OrgID: b.OrgID, ID: b.ID, Now: h.runner.store.now()}
		for to, u := range map[**ids.ID]*Upload{&end.OutputFileID: good, &end.ErrorFileID: bad} {
			if u == nil {
				continue
			}
			f, err := u.finish(rows, time.Duration(b.OutputSeconds)*time.Second)
			if err != nil {
				return err
			}
			*to = &f.ID
		}
		return rows.EndBatch(ctx, end)
	})
	if err != nil {
		return err
	}
	return h.runner.store.dropLines(ctx, h.batch.OrgID, h.batch.ID)
}

// dropLines removes the lines of a batch that has ended: a part at a time, so that nobody waits for it.
func (s *Store) dropLines(ctx context.Context, org, id ids.ID) error {
	for {
		var gone int64
		err := s.in(ctx, org, func(rows *q.Queries) (err error) {
			gone, err = rows.DeleteSomeBatchLines(ctx, q.DeleteSomeBatchLinesParams{OrgID: org, BatchID: id, MaxRows: linesAtOnce})
			return err
		})
		if err != nil || gone < linesAtOnce {
			return err
		}
	}
}

// output writes the results of lines that completed, or of all others; nil when there are none.
func (h *hold) output(ctx context.Context, completed bool, outcome string) (u *Upload, err error) {
	name := FormatBatch(h.batch.ID) + "_error.jsonl"
	if completed {
		name = FormatBatch(h.batch.ID) + "_output.jsonl"
	}
	defer func() {
		if err != nil && u != nil {
			u.Abort()
			u = nil
		}
	}()
	for after := int32(0); ; {
		var page []q.LineResultsRow
		if err := h.runner.store.in(ctx, h.batch.OrgID, func(rows *q.Queries) (err error) {
			page, err = rows.LineResults(ctx, q.LineResultsParams{OrgID: h.batch.OrgID, BatchID: h.batch.ID, Completed: completed, After: after, MaxRows: resultsAtOnce})
			return err
		}); err != nil {
			return u, err
		}
		if len(page) == 0 {
			if u != nil {
				err = u.flush()
			}
			return u, err
		}
		if u == nil {
			owner := Owner{Org: h.batch.OrgID, Project: h.batch.ProjectID, Key: h.batch.KeyID}
			if u, err = h.runner.store.Begin(ctx, owner, Output, name); err != nil {
				return nil, err
			}
		}
		for _, l := range page {
			after = l.N
			text := l.Result
			if text == nil {
				text = appendUnfinished(nil, h.batch.ID, &l, outcome)
			}
			if _, err := u.Write(text); err != nil {
				return u, err
			}
		}
	}
}
