// Package openai is the inference surface in OpenAI's dialect: Chat Completions and the list of models under /v1. It owns
// HTTP matters only (headers, sizes, content types, envelopes); requests are checked in serving/protocol and served by
// serving/gate.
//
// Invariants: every answer carries x-request-id; every error, unknown paths and methods included, is in OpenAI's
// envelope; nothing of an engine or of the inside is named.
package openai

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"millrace/api/problem"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/gate"
	"millrace/serving/protocol"
	"millrace/tenants/keys"
)

// Authenticator tells whose key a request carries: *keys.Authenticator.
type Authenticator interface {
	Authenticate(ctx context.Context, key string) (keys.Principal, error)
}

// Models lists what customers may call: *catalogue.Catalogue.
type Models interface {
	Models() []*catalogue.Model
	Model(name string) (*catalogue.Model, bool)
}

// API serves the routes.
type API struct {
	Gate   *gate.Gate
	Auth   Authenticator
	Models Models
	Prices Prices
	Clock  clock.Clock
}

// The paths.
const (
	prefix     = "/v1"
	pathChat   = "/v1/chat/completions"
	pathModels = "/v1/models"
)

// Register adds the routes. All of /v1 is this package's, whatever the method, so that every error there is in OpenAI's
// envelope.
func (a *API) Register(e *echo.Echo) {
	e.Any(pathChat, handle(only(http.MethodPost, a.chat)))
	e.Any(pathModels, handle(only(http.MethodGet, a.listModels)))
	e.Any(pathModels+"/*", handle(only(http.MethodGet, a.showModel)))
	e.Any(prefix, handle(unknown))
	e.Any(prefix+"/*", handle(unknown))
}

// only refuses other methods. HEAD works where GET does: net/http leaves the body out.
func only(method string, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, id ids.ID) error {
		if r.Method != method && !(r.Method == http.MethodHead && method == http.MethodGet) {
			w.Header().Set("Allow", method)
			return fault.New(fault.Method, "%s takes %s, not %s.", shown(r.URL.Path), method, r.Method)
		}
		return h(w, r, id)
	}
}

// handler serves one request. An error is said in OpenAI's envelope; then nothing has been written.
type handler func(w http.ResponseWriter, r *http.Request, id ids.ID) error

// handle goes past echo's response: it would count and copy on every chunk.
func handle(h handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		w, r := c.Response().Writer, c.Request()
		id := ids.New()
		w.Header()[problem.HeaderRequestID] = []string{ids.Format(ids.Request, id)}
		if err := h(w, r, id); err != nil {
			problem.OpenAI(w, r, err)
		}
		return nil
	}
}

// unknown answers what no route takes.
func unknown(_ http.ResponseWriter, r *http.Request, _ ids.ID) error {
	return fault.New(fault.NotFound, "There is nothing at %s %s. The API begins at %s.", r.Method, shown(r.URL.Path), pathChat).WithCode("unknown_path")
}

const maxShown = 100

func shown(path string) string {
	if len(path) > maxShown {
		return strings.ToValidUTF8(path[:maxShown], "") + "…"
	}
	return path
}

// authenticate takes the key from Authorization or x-api-key: clients of either API use either.
func (a *API) authenticate(r *http.Request) (keys.Principal, error) {
	key := r.Header.Get("X-Api-Key")
	if h := r.Header.Get("Authorization"); h != "" {
		scheme, value, found := strings.Cut(h, " ")
		if !found || !strings.EqualFold(scheme, "Bearer") {
			return keys.Principal{}, fault.New(fault.Unauthenticated, "Send the API key as Authorization: Bearer YOUR_KEY.").WithCode("invalid_api_key")
		}
		key = strings.TrimSpace(value)
	}
	return a.Auth.Authenticate(r.Context(), key)
}

var chatDialect = gate.Dialect{
	Name:  "chat",
	Frame: problem.OpenAIFrame,
	Answer: func(stream bool, p protocol.AnswerParams) protocol.Answer {
		if stream {
			return protocol.NewChatStream(p)
		}
		return protocol.NewChatWhole(p)
	},
}

func (a *API) chat(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	if err := wantJSON(r.Header); err != nil {
		return err
	}
	caller, err := a.authenticate(r)
	if err != nil {
		return err
	}
	body, err := a.readBody(w, r)
	if err != nil {
		return err
	}
	defer bodies.give(body)
	req, err := protocol.DecodeChat(body)
	if err != nil {
		return err
	}
	h := w.Header()
	if len(req.Ignored) > 0 {
		h.Set("Millrace-Warning", "ignored: "+strings.Join(req.Ignored, ", "))
	}
	ticket, err := a.Gate.Admit(r.Context(), gate.Request{ID: id, Caller: caller, Chat: req, Dialect: &chatDialect})
	if err != nil {
		return err
	}
	ticket.Headers(h)
	return ticket.Serve(r.Context(), w)
}
