// Package inference is what the inference surfaces share: whose key a request carries, its body within the limits, its
// id, and how a handler's error becomes its dialect's envelope. It knows no dialect.
package inference

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/labstack/echo/v4"

	"millrace/api/problem"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants/keys"
)

// Authenticator tells whose key a request carries: *keys.Authenticator.
type Authenticator interface {
	Authenticate(ctx context.Context, key string) (keys.Principal, error)
}

// Door lets requests in.
type Door struct {
	Auth  Authenticator
	Clock clock.Clock
}

// Handler serves one request. An error is said in the dialect's envelope; then nothing has been written.
type Handler func(w http.ResponseWriter, r *http.Request, id ids.ID) error

// Handle goes past echo's response: it would count and copy on every chunk. render says an error in the dialect.
func Handle(h Handler, render func(http.ResponseWriter, *http.Request, error)) echo.HandlerFunc {
	return func(c echo.Context) error {
		w, r := c.Response().Writer, c.Request()
		id := ids.New()
		w.Header()[problem.HeaderRequestID] = []string{ids.Format(ids.Request, id)}
		if err := guarded(h, w, r, id); err != nil {
			render(w, r, err)
		}
		return nil
	}
}

// guarded makes an error of a handler's panic, but for the one that means to cut an answer off: what panics has written
// nothing, since the gate guards what writes.
func guarded(h Handler, w http.ResponseWriter, r *http.Request, id ids.ID) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		slog.Error("a request panicked", "request_id", ids.Format(ids.Request, id), "panic", p, "stack", string(debug.Stack()))
		err = fault.Of(fmt.Errorf("inference: panic: %v", p))
	}()
	return h(w, r, id)
}

// Only refuses other methods. HEAD works where GET does: net/http leaves the body out.
func Only(method string, h Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request, id ids.ID) error {
		if r.Method != method && !(r.Method == http.MethodHead && method == http.MethodGet) {
			w.Header().Set("Allow", method)
			return fault.New(fault.Method, "%s takes %s, not %s.", Shown(r.URL.Path), method, r.Method)
		}
		return h(w, r, id)
	}
}

// Authenticate takes the key from Authorization or x-api-key: clients of every API use either.
func (d *Door) Authenticate(r *http.Request) (keys.Principal, error) {
	key := r.Header.Get("X-Api-Key")
	if h := r.Header.Get("Authorization"); h != "" {
		scheme, value, found := strings.Cut(h, " ")
		if !found || !strings.EqualFold(scheme, "Bearer") {
			return keys.Principal{}, fault.New(fault.Unauthenticated, "Send the API key as Authorization: Bearer YOUR_KEY.").WithCode("invalid_api_key")
		}
		key = strings.TrimSpace(value)
	}
	return d.Auth.Authenticate(r.Context(), key)
}

// Enter is how a request with a JSON body begins: what the body says of itself, the key, then the body, which the caller
// gives back with Give.
func (d *Door) Enter(w http.ResponseWriter, r *http.Request) (keys.Principal, []byte, error) {
	if err := wantJSON(r.Header); err != nil {
		return keys.Principal{}, nil, err
	}
	caller, err := d.Authenticate(r)
	if err != nil {
		return caller, nil, err
	}
	body, err := d.readBody(w, r)
	return caller, body, err
}

// warning is the header that names what was accepted and not acted upon.
const warning = "Millrace-Warning"

// Warn tells a client which members were ignored.
func Warn(h http.Header, ignored []string) {
	if len(ignored) > 0 {
		h.Set(warning, "ignored: "+strings.Join(ignored, ", "))
	}
}

// sessionHeaders are where clients name their session: Claude Code, Codex, OpenCode, and what others have settled on.
var sessionHeaders = []string{"X-Claude-Code-Session-Id", "Session_id", "Session-Id", "X-Session-Id", "X-Session-Affinity", "Conversation_id"}

const maxSession = 256 // bytes

// Session is the session that a client's headers name, a hint for routing; "" = none.
func Session(h http.Header) string {
	for _, name := range sessionHeaders {
		if v := h[name]; len(v) > 0 && v[0] != "" && len(v[0]) <= maxSession {
			return v[0]
		}
	}
	return ""
}

const maxShown = 100

// Shown is what is repeated of a client's own text in an error.
func Shown(text string) string {
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return text
}

// WriteJSON writes a good answer.
func WriteJSON(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // a failed write means that the caller has gone
	return nil
}
