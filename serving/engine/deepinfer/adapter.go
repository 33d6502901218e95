package deepinfer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"millrace/internal/fault"
	"millrace/serving/engine/dsml"
	"millrace/serving/engine/scan"
)

// Limits.
const (
	maxBody   = 64 << 20 // bytes of a request
	maxAnswer = 64 << 20 // bytes of an engine's answer that is no stream: tokens of a long prompt
	maxLine   = 4 << 20  // bytes of one event
	maxSmall  = 64 << 10
)

// Adapter is an http.Handler. It is safe for concurrent use.
type Adapter struct {
	mux     *http.ServeMux
	client  *http.Client
	base    string // of the engine's raw interface
	model   string
	ep      int
	options dsml.Options
	log     *slog.Logger

	mu       sync.Mutex
	running  map[string]context.CancelCauseFunc // by request id
	draining bool
	idle     chan struct{} // closed when nothing runs any more; nil while nobody waits
	drained  func()        // ends the process; nil = nothing to end
}

// Settings say what stands behind an adapter.
type Settings struct {
	Client  *http.Client // reaches the engine
	Base    string       // root URL of its raw interface
	Model   string       // the name to serve under
	EP      int          // the EP size that it must have; 0 = any
	Options dsml.Options
	Log     *slog.Logger // nil = slog.Default
	Drained func()       // called once a drain has ended
}

// New makes an adapter.
func New(s Settings) *Adapter {
	a := &Adapter{mux: http.NewServeMux(), client: s.Client, base: s.Base, model: s.Model, ep: s.EP, options: s.Options, log: s.Log,
		running: map[string]context.CancelCauseFunc{}, drained: s.Drained}
	if a.log == nil {
		a.log = slog.Default()
	}
	a.mux.HandleFunc("POST /v1/chat/completions", a.handle(a.chat))
	a.mux.HandleFunc("POST /v1/chat/completions/render", a.handle(a.render))
	a.mux.HandleFunc("GET /v1/models", a.handle(a.models))
	a.mux.HandleFunc("GET /health", a.handle(a.health))
	a.mux.HandleFunc("GET /load", a.handle(a.pass("/load")))
	a.mux.HandleFunc("GET /info", a.handle(a.pass("/info")))
	a.mux.HandleFunc("POST /cancel", a.handle(a.cancel))
	a.mux.HandleFunc("POST /drain", a.handle(a.drain))
	return a
}

// ServeHTTP implements http.Handler.
func (a *Adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// handle writes errors as OpenAI does.
func (a *Adapter) handle(f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := f(w, r)
		if err == nil {
			return
		}
		fl := fault.Of(err)
		if fl.Kind == fault.Internal {
			a.log.Error("deepinfer adapter", "path", r.URL.Path, "error", err)
		}
		answer(w, fl.Kind.Status(), map[string]any{"error": map[string]any{
			"message": fl.Message, "type": fl.Kind.String(), "param": orNull(fl.Param), "code": orNull(fl.Code)}})
	}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil { // plain values always marshal
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have left
}

func (a *Adapter) models(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{"id": a.model, "object": "model", "owned_by": "deepinfer"}}})
	return nil
}

// health is the engine's, once it has the EP size that was asked for: one with another would be slow, or short of memory,
// without a word.
func (a *Adapter) health(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.get(r.Context(), "/health", maxSmall); err != nil {
		return err
	}
	text, err := a.get(r.Context(), "/info", maxSmall)
	if err != nil {
		return err
	}
	var info struct {
		EP int `json:"ep_size"`
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return fault.Wrap(err, fault.Upstream, "What the engine says of itself cannot be read.")
	}
	if a.ep > 0 && info.EP != a.ep {
		return fault.New(fault.Unavailable, "The engine has an EP size of %d, and %d were asked for.", info.EP, a.ep)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// pass hands the engine's word on as it is.
func (a *Adapter) pass(path string) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		text, err := a.get(r.Context(), path, maxAnswer)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
		return nil
	}
}

// render gives the tokens of a chat's prompt.
func (a *Adapter) render(w http.ResponseWriter, r *http.Request) error {
	body, prompt, err := a.read(w, r)
	if err != nil {
		return err
	}
	text, err := a.post(r.Context(), "/v1/tokens", prompt.AppendRequest(nil, body, dsml.Request{Model: a.model}))
	if err != nil {
		return err
	}
	var got struct {
		Tokens json.RawMessage `json:"tokens"`
	}
	if err := json.Unmarshal(text, &got); err != nil || len(got.Tokens) == 0 {
		return fault.New(fault.Upstream, "The engine told no tokens.")
	}
	answer(w, http.StatusOK, map[string]any{"token_ids": got.Tokens, "model": a.model})
	return nil
}

// read takes in a chat and renders its prompt.
func (a *Adapter) read(w http.ResponseWriter, r *http.Request) ([]byte, *dsml.Prompt, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.TooLarge, "The body cannot be read, or is above %d MiB.", maxBody>>20)
	}
	if !json.Valid(body) {
		return nil, nil, fault.New(fault.Invalid, "The body must be JSON.")
	}
	if name := text(member(body, "model")); name != a.model {
		return nil, nil, fault.New(fault.NotFound, "The model %q does not exist; this engine serves %q.", name, a.model).WithParam("model").WithCode("model_not_found")
	}
	prompt, err := dsml.Render(body, a.options)
	return body, prompt, err
}

// member finds a member of an object, nil when there is none.
func member(object []byte, name string) (value []byte) {
	m := scan.Object(object)
	for m.Next() {
		if string(m.Key) == name && string(m.Value) != "null" {
			value = m.Value
		}
	}
	return value
}

func text(raw []byte) string {
	b, _ := scan.Text(nil, raw)
	return string(b)
}

// cancel ends one request.
func (a *Adapter) cancel(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		ID string `json:"request_id"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSmall)).Decode(&q); err != nil || q.ID == "" {
		return fault.New(fault.Invalid, "Say which request_id is to end.").WithParam("request_id")
	}
	a.mu.Lock()
	end := a.running[q.ID]
	a.mu.Unlock()
	if end != nil {
		end(errCancelled)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// drain takes nothing new and ends the process once what runs has ended, or the limit has passed.
func (a *Adapter) drain(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Seconds int64 `json:"seconds"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSmall)).Decode(&q); err != nil || q.Seconds < 0 {
		return fault.New(fault.Invalid, "Say within how many seconds.").WithParam("seconds")
	}
	a.mu.Lock()
	first := !a.draining
	a.draining = true
	idle := make(chan struct{})
	switch {
	case !first: // said again: the first one waits
	case len(a.running) == 0:
		close(idle)
	default:
		a.idle = idle
	}
	a.mu.Unlock()
	if first && a.drained != nil {
		go func() { // ends the process
			limit := time.NewTimer(time.Duration(q.Seconds) * time.Second)
			defer limit.Stop()
			select {
			case <-idle:
			case <-limit.C:
			}
			a.drained()
		}()
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// enter takes a request in; the context ends when it is cancelled.
func (a *Adapter) enter(ctx context.Context, id string) (context.Context, func(), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return nil, nil, fault.New(fault.Unavailable, "The engine is being stopped.")
	}
	if _, twice := a.running[id]; twice || id == "" {
		id = fmt.Sprintf("%s#%p", id, &ctx) // nobody can name it
	}
	ctx, end := context.WithCancelCause(ctx)
	a.running[id] = end
	return ctx, func() {
		end(nil)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.running, id)
		if len(a.running) == 0 && a.idle != nil {
			close(a.idle)
			a.idle = nil
		}
	}, nil
}
