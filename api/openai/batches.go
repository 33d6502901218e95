package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"millrace/api/inference"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/batch"
	"millrace/serving/engine/scan"
)

// Paths of batches.
const (
	pathBatches = "/v1/batches"
	cancel      = "/cancel"
)

// Batch lists have so many entries, unless they are asked for others.
const defaultBatches = 20

// shownBatch is a batch as OpenAI shows it. Paused is ours, and there only while it says something.
type shownBatch struct {
	ID               string          `json:"id"`
	Object           string          `json:"object"`
	Endpoint         string          `json:"endpoint"`
	Model            *string         `json:"model"`
	Errors           json.RawMessage `json:"errors"`
	InputFileID      string          `json:"input_file_id"`
	CompletionWindow string          `json:"completion_window"`
	Status           string          `json:"status"`
	OutputFileID     *string         `json:"output_file_id"`
	ErrorFileID      *string         `json:"error_file_id"`
	CreatedAt        int64           `json:"created_at"`
	InProgressAt     *int64          `json:"in_progress_at"`
	ExpiresAt        int64           `json:"expires_at"`
	FinalizingAt     *int64          `json:"finalizing_at"`
	CompletedAt      *int64          `json:"completed_at"`
	FailedAt         *int64          `json:"failed_at"`
	ExpiredAt        *int64          `json:"expired_at"`
	CancellingAt     *int64          `json:"cancelling_at"`
	CancelledAt      *int64          `json:"cancelled_at"`
	RequestCounts    struct {
		Total     int32 `json:"total"`
		Completed int32 `json:"completed"`
		Failed    int32 `json:"failed"`
	} `json:"request_counts"`
	Metadata json.RawMessage `json:"metadata"`
	Paused   *paused         `json:"paused,omitempty"`
}

// paused is why nothing of a batch runs just now.
type paused struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func showBatch(b batch.Batch) shownBatch {
	s := shownBatch{ID: batch.FormatBatch(b.ID), Object: "batch", Endpoint: b.Endpoint, Errors: raw(b.Errors), InputFileID: batch.FormatFile(b.InputFileID),
		CompletionWindow: b.CompletionWindow, Status: b.Status, OutputFileID: fileID(b.OutputFileID), ErrorFileID: fileID(b.ErrorFileID),
		CreatedAt: b.CreatedAt.Unix(), InProgressAt: unix(b.InProgressAt), ExpiresAt: b.ExpiresAt.Unix(), FinalizingAt: unix(b.FinalizingAt),
		CompletedAt: unix(b.CompletedAt), FailedAt: unix(b.FailedAt), ExpiredAt: unix(b.ExpiredAt), CancellingAt: unix(b.CancellingAt),
		CancelledAt: unix(b.CancelledAt), Metadata: raw(b.Metadata)}
	if b.Model != "" {
		s.Model = &b.Model
	}
	s.RequestCounts.Total, s.RequestCounts.Completed, s.RequestCounts.Failed = b.Total, b.Completed, b.Failed
	if b.PauseCode != "" && b.Status == batch.InProgress {
		s.Paused = &paused{b.PauseCode, b.PauseMessage}
	}
	return s
}

func raw(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}

func fileID(id *ids.ID) *string {
	if id == nil {
		return nil
	}
	text := batch.FormatFile(*id)
	return &text
}

func unix(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	seconds := t.Unix()
	return &seconds
}

// batches is /v1/batches.
func (a *API) batches(w http.ResponseWriter, r *http.Request, _ ids.ID) error {
	switch r.Method {
	case http.MethodPost:
		return a.createBatch(w, r)
	case http.MethodGet, http.MethodHead:
		return a.listBatches(w, r)
	}
	return wrongMethod(w, r, http.MethodGet, http.MethodPost)
}

// oneBatch is /v1/batches/{id} and /v1/batches/{id}/cancel.
func (a *API) oneBatch(w http.ResponseWriter, r *http.Request, _ ids.ID) error {
	caller, err := a.visit(r)
	if err != nil {
		return err
	}
	name, ending := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, pathBatches+"/"), cancel)
	id, err := batch.ParseBatch(name)
	if err != nil {
		return err
	}
	do, method := a.Batches.Batch, http.MethodGet
	if ending {
		do, method = a.Batches.Cancel, http.MethodPost
	}
	if r.Method != method && !(r.Method == http.MethodHead && !ending) {
		return wrongMethod(w, r, method)
	}
	b, err := do(r.Context(), ownerOf(&caller), id)
	if err != nil {
		return err
	}
	return inference.WriteJSON(w, showBatch(b))
}

func (a *API) listBatches(w http.ResponseWriter, r *http.Request) error {
	caller, err := a.visit(r)
	if err != nil {
		return err
	}
	p, err := page(r, defaultBatches, batch.MaxListed, batch.ParseBatch)
	if err != nil {
		return err
	}
	found, more, err := a.Batches.Batches(r.Context(), ownerOf(&caller), p)
	if err != nil {
		return err
	}
	out := list[shownBatch]{Object: "list", Data: make([]shownBatch, len(found)), HasMore: more}
	for i, b := range found {
		out.Data[i] = showBatch(b)
	}
	if n := len(out.Data); n > 0 {
		out.FirstID, out.LastID = &out.Data[0].ID, &out.Data[n-1].ID
	}
	return inference.WriteJSON(w, out)
}

// newBatch is the body that makes a batch.
type newBatch struct {
	InputFileID      string            `json:"input_file_id"`
	Endpoint         string            `json:"endpoint"`
	CompletionWindow string            `json:"completion_window"`
	Metadata         map[string]string `json:"metadata"`
	OutputExpires    *struct {
		Anchor  string `json:"anchor"`
		Seconds int64  `json:"seconds"`
	} `json:"output_expires_after"`
}

func (a *API) createBatch(w http.ResponseWriter, r *http.Request) error {
	caller, body, err := a.visitWithBody(w, r)
	if err != nil {
		return err
	}
	defer inference.Give(body)
	var in newBatch
	ignored, err := decodeStrictly(body, &in)
	if err != nil {
		return err
	}
	n := batch.NewBatch{Endpoint: in.Endpoint, Window: in.CompletionWindow, Metadata: in.Metadata}
	if n.Input, err = batch.ParseFile(in.InputFileID); err != nil {
		f := *fault.Of(err)
		f.Param = "input_file_id"
		if in.InputFileID == "" {
			f.Kind, f.Message, f.Code = fault.Invalid, "You must provide an input_file_id.", "missing_required_parameter"
		}
		return &f
	}
	if x := in.OutputExpires; x != nil {
		if x.Anchor != "created_at" || x.Seconds <= 0 || x.Seconds > int64(batch.MaxExpiry/time.Second) {
			return fault.New(fault.Invalid, `output_expires_after needs the anchor "created_at" and seconds up to %d.`, batch.MaxExpiry/time.Second).WithParam("output_expires_after")
		}
		n.OutputExpiry = time.Duration(x.Seconds) * time.Second
	}
	b, err := a.Batches.Create(r.Context(), ownerOf(&caller), n)
	if err != nil {
		return err
	}
	inference.Warn(w.Header(), ignored)
	return inference.WriteJSON(w, showBatch(b))
}

const maxBatchMembers = 64 // of the body that makes a batch

// decodeStrictly reads a small body, and names the members that it does not know.
func decodeStrictly(body []byte, into *newBatch) (ignored []string, err error) {
	if !json.Valid(body) {
		return nil, fault.New(fault.Invalid, "The request body is not valid JSON.").WithCode("invalid_json")
	}
	members := map[string]json.RawMessage{}
	m := scan.Object(body)
	for m.Next() {
		name := string(m.Key)
		if _, twice := members[name]; twice || len(members) == maxBatchMembers {
			return nil, fault.New(fault.Invalid, "%q is given twice, or there are too many members.", inference.Shown(name)).WithParam(inference.Shown(name))
		}
		members[name] = m.Value
	}
	if m.Err() != nil {
		return nil, fault.New(fault.Invalid, "The request body must be a JSON object.").WithCode("invalid_json")
	}
	for _, m := range []struct {
		name string
		to   any
	}{{"input_file_id", &into.InputFileID}, {"endpoint", &into.Endpoint}, {"completion_window", &into.CompletionWindow},
		{"metadata", &into.Metadata}, {"output_expires_after", &into.OutputExpires}} {
		text, given := members[m.name]
		delete(members, m.name)
		if !given {
			continue
		}
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(m.to); err != nil {
			return nil, fault.New(fault.Invalid, "%s has the wrong type.", m.name).WithParam(m.name).WithCause(err)
		}
	}
	for name := range members {
		ignored = append(ignored, asciiName(inference.Shown(name)))
	}
	return ignored, nil
}
