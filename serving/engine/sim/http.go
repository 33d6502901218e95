package sim

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/engine/tok"
)

// Header marks every answer of a simulated engine.
const Header = "X-Millrace-Simulated"

// Handler serves the engine's HTTP interface.
func (e *Engine) Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { e.generate(w, r, true) })
	m.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { e.generate(w, r, false) })
	m.HandleFunc("POST /v1/embeddings", e.serveEmbeddings)
	m.HandleFunc("GET /v1/models", e.serveModels)
	if path := e.voice.traits().metricsPath; path != "" {
		m.HandleFunc("GET "+path, e.serveMetrics)
	}
	e.voice.routes(e, m)
	m.HandleFunc("POST "+transferPath, e.serveTransfer)
	if e.cfg.Faults {
		m.HandleFunc("POST /sim/faults", e.serveFaults)
		m.HandleFunc("GET /sim/faults", e.serveFaults)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()[Header] = headerTrue
		if e.voice.traits().shutsForResize && e.vllmShut(r.URL.Path) {
			e.writeStatus(w, http.StatusServiceUnavailable, "The model is currently scaling. Please try again later.", "")
			return
		}
		if e.dead.Load() && strings.HasPrefix(r.URL.Path, "/health") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		m.ServeHTTP(w, r)
	})
}

var headerTrue = []string{"true"}

// generate answers a chat or a completion.
func (e *Engine) generate(w http.ResponseWriter, r *http.Request, chat bool) {
	q, err := e.read(w, r, chat)
	if err != nil {
		e.writeError(w, err)
		return
	}
	f := e.faults.take(q.stream)
	switch {
	case f.Crash:
		e.exit(crashCode)
		return
	case f.FailBeforeFirst != 0:
		e.writeStatus(w, f.FailBeforeFirst, "Simulated failure.", http.StatusText(f.FailBeforeFirst))
		return
	case f.ResetFirst:
		reset(w)
		return
	case f.Hang:
		<-r.Context().Done()
		return
	case f.EmptyAnswer:
		w.WriteHeader(http.StatusOK)
		return
	case !f.slow(r):
		return
	case e.dead.Load():
		e.writeError(w, errDead())
		return
	}
	if q.id == "" {
		q.id = e.newID()
	}
	left, err := e.meet(r.Context(), q, &f)
	defer left()
	if err != nil {
		e.writeError(w, err)
		return
	}
	a, err := e.begin(q)
	if err != nil {
		e.writeError(w, err)
		return
	}
	defer e.ops.leave(a)
	if err := e.ops.enter(a); err != nil {
		a.rank.sched.abort(a.seqs)
		e.writeError(w, err)
		return
	}
	a.faults = f
	defer a.rank.sched.abort(a.seqs) // nothing, unless the client left or a fault struck
	if q.stream {
		err = a.stream(w, r)
	} else {
		err = a.whole(w, r)
	}
	if errors.Is(err, errCut) {
		panic(http.ErrAbortHandler) // net/http's way to break a connection off
	}
}

func (e *Engine) read(w http.ResponseWriter, r *http.Request, chat bool) (*request, error) {
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	return e.parse(r, body, chat)
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	in := http.MaxBytesReader(w, r.Body, maxBodyBytes)
	if n := r.ContentLength; n >= 0 && n <= maxBodyBytes {
		body := make([]byte, n)
		if _, err := io.ReadFull(in, body); err != nil {
			return nil, fault.Wrap(err, fault.Invalid, "The body is incomplete.")
		}
		return body, nil
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return nil, fault.Wrap(err, fault.TooLarge, "The body cannot be read, or is above %d bytes.", maxBodyBytes)
	}
	return body, nil
}

func (e *Engine) serveReset(w http.ResponseWriter, _ *http.Request) {
	for _, r := range e.ranks {
		r.sched.clearCache()
	}
	writeJSON(w, http.StatusOK, map[string]bool{"success": true})
}

func (e *Engine) serveRender(w http.ResponseWriter, r *http.Request) {
	q, err := e.read(w, r, true)
	if err != nil {
		e.writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"request_id": "chatcmpl-" + e.newID(), "token_ids": q.prompts[0], "model": q.model, "stream": q.stream, "cache_salt": q.salt,
	})
}

// serveTokenize gives the tokens of messages or of a prompt.
func (e *Engine) serveTokenize(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		e.writeError(w, err)
		return
	}
	var ids []uint32
	m := scan.Object(body)
	for m.Next() {
		switch string(m.Key) {
		case "messages":
			ids, err = tok.ApplyChat(body)
		case "prompt":
			var s []byte
			if s, _ = scan.Text(nil, m.Value); ids == nil {
				ids = tok.Append([]uint32{tok.Begin}, s)
			}
		}
	}
	if err == nil && (m.Err() != nil || ids == nil) {
		err = invalid("prompt", "messages or a prompt is required.")
	}
	if err != nil {
		e.writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": e.context, "tokens": ids, "token_strs": nil})
}

func (e *Engine) serveModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		Owner   string `json:"owned_by"`
		Context int    `json:"max_model_len"`
	}
	now := e.clock.Now().Unix()
	all := []model{{e.cfg.Model, "model", now, "millrace-simulated", e.context}}
	if !strings.HasSuffix(e.cfg.Model, thinkSuffix) {
		all = append(all, model{e.cfg.Model + thinkSuffix, "model", now, "millrace-simulated", e.context})
	}
	for _, name := range e.ops.names() {
		all = append(all, model{name, "model", now, "millrace-simulated", e.context})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": all})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // cannot happen: only plain values are passed
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have left
}

// writeError answers as the engine does.
func (e *Engine) writeError(w http.ResponseWriter, err error) {
	f := fault.Of(err)
	writeJSON(w, f.Kind.Status(), e.voice.refusal(f.Kind.Status(), f))
}

// writeStatus answers with any status; kind is the error's type where the engine tells one.
func (e *Engine) writeStatus(w http.ResponseWriter, status int, message, kind string) {
	writeJSON(w, status, e.voice.refusal(status, fault.New(fault.Internal, "%s", message).WithCode(kind)))
}
