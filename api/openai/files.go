package openai

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"millrace/api/inference"
	"millrace/internal/download"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/batch"
	"millrace/tenants/keys"
)

// Paths of files.
const (
	pathFiles = "/v1/files"
	content   = "/content"
)

// Limits of an upload's form.
const (
	maxFormField = 1 << 10 // bytes of a value that is no file
	maxFormParts = 16
	formOverhead = 64 << 10 // bytes around the file
)

// file is a file as OpenAI shows it.
type file struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt int64  `json:"expires_at"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"`
}

func shownFile(f batch.File) file {
	return file{ID: batch.FormatFile(f.ID), Object: "file", Bytes: f.Bytes, CreatedAt: f.CreatedAt.Unix(), ExpiresAt: f.ExpiresAt.Unix(),
		Filename: f.Filename, Purpose: f.Purpose, Status: "processed"}
}

// list is a page of a list.
type list[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func ownerOf(c *keys.Principal) batch.Owner {
	return batch.Owner{Org: c.Org, Project: c.Project, Key: c.Key}
}

// files is /v1/files.
func (a *API) files(w http.ResponseWriter, r *http.Request, _ ids.ID) error {
	switch r.Method {
	case http.MethodPost:
		return a.uploadFile(w, r)
	case http.MethodGet, http.MethodHead:
		return a.listFiles(w, r)
	}
	return wrongMethod(w, r, http.MethodGet, http.MethodPost)
}

// oneFile is /v1/files/{id} and /v1/files/{id}/content.
func (a *API) oneFile(w http.ResponseWriter, r *http.Request, _ ids.ID) error {
	caller, err := a.visit(r)
	if err != nil {
		return err
	}
	owner := ownerOf(&caller)
	name, whole := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, pathFiles+"/"), content)
	id, err := batch.ParseFile(name)
	if err != nil {
		return err
	}
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case whole && !get:
		return wrongMethod(w, r, http.MethodGet)
	case r.Method == http.MethodDelete:
		if err := a.Batches.Delete(r.Context(), owner, id); err != nil {
			return err
		}
		return inference.WriteJSON(w, struct {
			ID      string `json:"id"`
			Object  string `json:"object"`
			Deleted bool   `json:"deleted"`
		}{name, "file", true})
	case !get:
		return wrongMethod(w, r, http.MethodGet, http.MethodDelete)
	}
	f, err := a.Batches.File(r.Context(), owner, id)
	if err != nil {
		return err
	}
	if whole {
		return a.sendFile(w, r, f)
	}
	return inference.WriteJSON(w, shownFile(f))
}

// sendFile sends a file as it was uploaded. What breaks off never looks whole.
func (a *API) sendFile(w http.ResponseWriter, r *http.Request, f batch.File) error {
	w.Header().Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	return download.Send(w, download.Answer{Name: asciiName(f.Filename), MediaType: "application/octet-stream",
		Write: func(to io.Writer) (map[string]string, error) {
			if r.Method == http.MethodHead {
				return nil, nil
			}
			_, err := io.CopyBuffer(to, struct{ io.Reader }{a.Batches.Open(r.Context(), f)}, make([]byte, 64<<10))
			return nil, err
		}})
}

// asciiName is a file's name as a header can say it.
func asciiName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '_'
		}
		return r
	}, name)
}

func (a *API) listFiles(w http.ResponseWriter, r *http.Request) error {
	caller, err := a.visit(r)
	if err != nil {
		return err
	}
	p, err := page(r, batch.MaxListFiles, batch.MaxListFiles, batch.ParseFile)
	if err != nil {
		return err
	}
	switch p.Purpose = r.URL.Query().Get("purpose"); p.Purpose {
	case "", batch.Input, batch.Output:
	default: // no file has another
		return inference.WriteJSON(w, list[file]{Object: "list", Data: []file{}})
	}
	found, more, err := a.Batches.Files(r.Context(), ownerOf(&caller), p)
	if err != nil {
		return err
	}
	out := list[file]{Object: "list", Data: make([]file, len(found)), HasMore: more}
	for i, f := range found {
		out.Data[i] = shownFile(f)
	}
	if n := len(out.Data); n > 0 {
		out.FirstID, out.LastID = &out.Data[0].ID, &out.Data[n-1].ID
	}
	return inference.WriteJSON(w, out)
}

// page reads which part of a list is wanted.
func page(r *http.Request, limit, most int, parse func(string) (ids.ID, error)) (p batch.Page, err error) {
	query := r.URL.Query()
	p.Limit = limit
	if text := query.Get("limit"); text != "" {
		if p.Limit, err = strconv.Atoi(text); err != nil || p.Limit < 1 || p.Limit > most {
			return p, fault.New(fault.Invalid, "limit must be between 1 and %d.", most).WithParam("limit")
		}
	}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		p.Ascending = true
	default:
		return p, fault.New(fault.Invalid, "order must be asc or desc.").WithParam("order")
	}
	if text := query.Get("after"); text != "" {
		if p.After, err = parse(text); err != nil {
			return p, fault.New(fault.Invalid, "after must be the id of the last one of the page before.").WithParam("after")
		}
	}
	return p, nil
}
