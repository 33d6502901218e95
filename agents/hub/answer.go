package hub

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"millrace/internal/fault"
)

const (
	maxJoinBytes = 64 << 10
	joinTime     = 10 * time.Second // for all of a request by who may be anybody
	noContent    = http.StatusNoContent
)

// soon bounds how long a caller may take to say what it wants.
func soon(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(joinTime)) // a recorder in a test has none
		next(w, r)
	}
}

// handler does one call of an agent: its answer goes out as JSON, nil as 204.
type handler func(r *http.Request) (any, error)

// answer renders a handler. Agents are ours: they get the fault's kind and message.
func (h *Hub) answer(fn handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := fn(r)
		if err != nil {
			f := fault.Of(err)
			if f.Kind == fault.Internal && r.Context().Err() == nil {
				h.cfg.Log.Error("an agent's call failed", "path", r.URL.Path, "error", err)
			}
			http.Error(w, f.Message, f.Kind.Status())
			return
		}
		if out == nil {
			w.WriteHeader(noContent)
			return
		}
		text, err := json.Marshal(out)
		if err != nil {
			h.cfg.Log.Error("an answer to an agent cannot be written", "path", r.URL.Path, "error", err)
			http.Error(w, "internal", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}
}

// read decodes a bounded body.
func read(r *http.Request, limit int64, into any) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return fault.New(fault.Invalid, "The request broke off.").WithCause(err)
	case int64(len(text)) > limit:
		return fault.New(fault.TooLarge, "The request is above %d bytes.", limit)
	}
	if bytes.Contains(text, []byte(`\u0000`)) { // the database takes none
		return fault.New(fault.Invalid, "The request has a zero character in a text.")
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fault.New(fault.Invalid, "The request is not what this call takes.").WithCause(err)
	}
	return nil
}
