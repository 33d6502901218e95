// Package anthropic is the inference surface in Anthropic's dialect: Messages and its count of tokens. It owns HTTP
// matters only (headers, routes, envelopes); requests are checked in serving/protocol/messages and served by serving/gate.
//
// Invariants: every answer carries request-id, equal to x-request-id; every error below /v1/messages, unknown paths and
// methods included, is in Anthropic's envelope; nothing of an engine or of the inside is named. Any anthropic-version and
// any anthropic-beta is taken: the request says what it needs.
package anthropic

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/gate"
	"millrace/serving/protocol"
	"millrace/serving/protocol/messages"
	"millrace/tenants/keys"
)

// Models finds a model by its public name: *catalogue.Catalogue.
type Models interface {
	Model(name string) (*catalogue.Model, bool)
}

// API serves the routes.
type API struct {
	Gate   *gate.Gate
	Door   inference.Door
	Models Models
	Sealer protocol.Sealer // of thinking
}

// Prefix begins every path that is this package's.
const Prefix = "/v1/messages"

// The paths.
const (
	pathMessages = Prefix
	pathCount    = Prefix + "/count_tokens"
)

// Register adds the routes. All below /v1/messages is this package's, whatever the method.
func (a *API) Register(e *echo.Echo) {
	e.Any(pathMessages, handle(inference.Only(http.MethodPost, a.create)))
	e.Any(pathCount, handle(inference.Only(http.MethodPost, a.count)))
	e.Any(Prefix+"/*", handle(unknown))
}

func handle(h inference.Handler) echo.HandlerFunc {
	return inference.Handle(func(w http.ResponseWriter, r *http.Request, id ids.ID) error {
		w.Header()[problem.HeaderAnthropicID] = w.Header()[problem.HeaderRequestID]
		return h(w, r, id)
	}, problem.Anthropic)
}

// unknown answers what no route takes.
func unknown(_ http.ResponseWriter, r *http.Request, _ ids.ID) error {
	return fault.New(fault.NotFound, "There is nothing at %s %s. Messages are made by POST %s.", r.Method, inference.Shown(r.URL.Path), pathMessages)
}

// enter lets a request in and decodes it.
func (a *API) enter(w http.ResponseWriter, r *http.Request, count bool) (caller keys.Principal, req *messages.Request, err error) {
	caller, body, err := a.Door.Enter(w, r)
	if err != nil {
		return caller, nil, err
	}
	defer inference.Give(body) // a decoded request keeps nothing of it
	req, err = messages.Decode(body, messages.Options{Count: count, Seal: protocol.ReasoningSeal{Sealer: a.Sealer, Org: caller.Org}})
	if err == nil {
		if session := inference.Session(r.Header); session != "" {
			req.Chat.CacheKey = session
		}
	}
	return caller, req, err
}

func (a *API) create(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	caller, req, err := a.enter(w, r, false)
	if err != nil {
		return err
	}
	if err := a.canPrefill(req); err != nil {
		return err
	}
	ticket, err := a.Gate.Admit(r.Context(), gate.Request{ID: id, Caller: caller, Chat: req.Chat, Dialect: dialect(req, id)})
	if err != nil {
		return say(req, err)
	}
	inference.Warn(w.Header(), req.Chat.Ignored)
	ticket.AnthropicHeaders(w.Header())
	if err := ticket.Serve(r.Context(), w); err != nil {
		return say(req, err)
	}
	return nil
}

// dialect is one request's: its answer shows what it asked for.
func dialect(req *messages.Request, id ids.ID) *gate.Dialect {
	return &gate.Dialect{Name: "messages", Prefix: "msg_", Answer: req.Answer, Frame: func(err error) []byte {
		return problem.AnthropicFrame(say(req, err), ids.Format(ids.Request, id))
	}}
}

func (a *API) count(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	caller, req, err := a.enter(w, r, true)
	if err != nil {
		return err
	}
	counted, err := a.Gate.CountTokens(r.Context(), gate.Request{ID: id, Caller: caller, Chat: req.Chat}, req.Tokens)
	if err != nil {
		return say(req, err)
	}
	inference.Warn(w.Header(), req.Chat.Ignored)
	if !counted.Exact {
		w.Header().Add("Millrace-Warning", "estimated: no engine of this model tells its tokens")
	}
	counted.AnthropicHeaders(w.Header())
	return inference.WriteJSON(w, struct {
		Tokens int64 `json:"input_tokens"`
	}{counted.Tokens})
}
