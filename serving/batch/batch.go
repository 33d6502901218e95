package batch

import (
	"context"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// The statuses of a batch.
const (
	Validating = "validating"
	Failed     = "failed"
	InProgress = "in_progress"
	Finalizing = "finalizing"
	Completed  = "completed"
	Expired    = "expired"
	Cancelling = "cancelling"
	Cancelled  = "cancelled"
)

// Batch is a batch.
type Batch q.Batch

// NewBatch is a batch to be made.
type NewBatch struct {
	Input        ids.ID
	Endpoint     string
	Window       string
	Metadata     map[string]string
	OutputExpiry time.Duration // of its output files; 0 = MaxExpiry
}

func (s *Store) check(in *NewBatch) error {
	switch {
	case s.endpoints.find(in.Endpoint) == nil:
		return fault.New(fault.Invalid, "Batches can be made for these endpoints: %s.", s.endpoints).WithCode("invalid_value").WithParam("endpoint")
	case in.Window != "24h":
		return fault.New(fault.Invalid, `The completion window must be "24h".`).WithCode("invalid_value").WithParam("completion_window")
	case len(in.Metadata) > maxMetadata:
		return fault.New(fault.Invalid, "There may be at most %d metadata.", maxMetadata).WithParam("metadata")
	}
	for k, v := range in.Metadata {
		if n := utf8.RuneCountInString(k); n == 0 || n > maxMetaKey || utf8.RuneCountInString(v) > maxMetaValue {
			return fault.New(fault.Invalid, "Metadata have keys of at most %d characters and values of at most %d.", maxMetaKey, maxMetaValue).WithParam("metadata")
		}
	}
	if in.OutputExpiry == 0 {
		in.OutputExpiry = MaxExpiry
	}
	return CheckExpiry("output_expires_after", in.OutputExpiry)
}

// CheckExpiry refuses a file's time that cannot be.
func CheckExpiry(param string, d time.Duration) error {
	if d < MinExpiry || d > MaxExpiry {
		return fault.New(fault.Invalid, "A file can expire after %d to %d seconds.", MinExpiry/time.Second, MaxExpiry/time.Second).WithParam(param + ".seconds")
	}
	return nil
}

// Create makes a batch. Its file is looked at later: what is wrong with it makes the batch fail.
func (s *Store) Create(ctx context.Context, o Owner, in NewBatch) (b Batch, err error) {
	if err := s.check(&in); err != nil {
		return Batch{}, err
	}
	now := s.now()
	p := q.InsertBatchParams{OrgID: o.Org, ID: ids.New(), ProjectID: o.Project, KeyID: o.Key, InputFileID: in.Input, Endpoint: in.Endpoint,
		CompletionWindow: in.Window, OutputSeconds: int64(in.OutputExpiry / time.Second), CreatedAt: now, ExpiresAt: now.Add(Window)}
	if in.Metadata != nil {
		text, err := json.Marshal(in.Metadata)
		if err != nil {
			return Batch{}, err
		}
		metadata := string(text)
		p.Metadata = &metadata
	}
	err = s.in(ctx, o.Org, func(rows *q.Queries) error {
		if err := rows.LockOrgBatches(ctx, o.Org.String()); err != nil {
			return err
		}
		open, err := rows.CountOpenBatches(ctx, o.Org)
		if err != nil {
			return err
		}
		if open >= MaxOpen {
			return fault.New(fault.Limited, "Your organization has %d batches that have not ended, the most there may be. Try again when one has.", MaxOpen).
				WithCode("batch_limit_exceeded").WithRetryAfter(time.Minute)
		}
		if err := s.inputOf(ctx, rows, o, in.Input); err != nil {
			return err
		}
		row, err := rows.InsertBatch(ctx, p)
		b = Batch(row)
		return err
	})
	if err == nil {
		select {
		case s.made <- struct{}{}:
		default:
		}
	}
	return b, err
}

// inputOf checks the input file, and locks it: who deletes it comes before or after.
func (s *Store) inputOf(ctx context.Context, rows *q.Queries, o Owner, id ids.ID) error {
	f, err := rows.GetFile(ctx, q.GetFileParams{OrgID: o.Org, ProjectID: o.Project, ID: id, Now: s.now()})
	if err == nil {
		f, err = rows.LockFile(ctx, q.LockFileParams{OrgID: o.Org, ID: id})
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault.New(fault.NotFound, "There is no file %s.", FormatFile(id)).WithCode("file_not_found").WithParam("input_file_id")
	case err != nil:
		return err
	case f.Purpose != Input:
		return fault.New(fault.Invalid, "The input file must have been uploaded with the purpose %q.", Input).WithParam("input_file_id")
	}
	return nil
}

func noBatch(id ids.ID) error {
	return fault.New(fault.NotFound, "There is no batch %s.", FormatBatch(id)).WithCode("batch_not_found").WithParam("batch_id")
}

// Batch gives one batch.
func (s *Store) Batch(ctx context.Context, o Owner, id ids.ID) (b Batch, err error) {
	err = s.in(ctx, o.Org, func(rows *q.Queries) error {
		row, err := rows.GetBatch(ctx, q.GetBatchParams{OrgID: o.Org, ProjectID: o.Project, ID: id})
		b = Batch(row)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = noBatch(id)
	}
	return b, err
}

// Batches lists batches, newest first; more says that there are further ones.
func (s *Store) Batches(ctx context.Context, o Owner, p Page) (list []Batch, more bool, err error) {
	err = s.in(ctx, o.Org, func(rows *q.Queries) error {
		found, err := rows.ListBatches(ctx, q.ListBatchesParams{OrgID: o.Org, ProjectID: o.Project, After: p.after(), MaxRows: int32(p.Limit + 1)})
		list, more = nil, len(found) > p.Limit
		for _, row := range found[:min(len(found), p.Limit)] {
			list = append(list, Batch(row))
		}
		return err
	})
	return list, more, err
}

// Cancel makes a batch end early. Lines in flight may still end; the results are kept. Cancelling twice is no error.
func (s *Store) Cancel(ctx context.Context, o Owner, id ids.ID) (b Batch, err error) {
	err = s.in(ctx, o.Org, func(rows *q.Queries) error {
		row, err := rows.CancelBatch(ctx, q.CancelBatchParams{OrgID: o.Org, ProjectID: o.Project, ID: id, Now: s.now()})
		b = Batch(row)
		return err
	})
	if !errors.Is(err, pgx.ErrNoRows) {
		return b, err
	}
	if b, err = s.Batch(ctx, o, id); err == nil && b.Status != Cancelling {
		err = fault.New(fault.Conflict, "A batch with the status %s cannot be cancelled.", b.Status).WithCode("batch_not_cancellable")
	}
	return b, err
}
