// Package openai is the inference surface in OpenAI's dialects: Chat Completions, Responses, files, batches and the list of models under
// /v1. It owns HTTP matters only (headers, sizes, content types, envelopes); requests are checked in serving/protocol and served by
// serving/gate; files and batches are serving/batch's.
//
// Invariants: every answer carries x-request-id; every error, unknown paths and methods included, is in OpenAI's
// envelope; nothing of an engine or of the inside is named.
package openai

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/batch"
	"millrace/serving/catalogue"
	"millrace/serving/gate"
	"millrace/serving/protocol"
	"millrace/serving/responses"
)

// Models lists what customers may call: *catalogue.Catalogue.
type Models interface {
	Models() []*catalogue.Model
	Model(name string) (*catalogue.Model, bool)
}

// API serves the routes.
type API struct {
	Gate      *gate.Gate
	Door      inference.Door
	Models    Models
	Prices    Prices
	Responses *responses.Service
	Batches   *batch.Store

	sockets sockets
	visits  visits
}

// The paths.
const (
	prefix     = "/v1"
	pathChat   = "/v1/chat/completions"
	pathText   = "/v1/completions"
	pathModels = "/v1/models"
)

// Register adds the routes. All of /v1 is this package's, whatever the method, so that every error there is in OpenAI's
// envelope.
func (a *API) Register(e *echo.Echo) {
	e.Any(pathChat, handle(inference.Only(http.MethodPost, a.chat)))
	e.Any(pathText, handle(inference.Only(http.MethodPost, a.text)))
	e.Any(pathEmbeddings, handle(inference.Only(http.MethodPost, a.embeddings)))
	e.Any(pathResponses, handle(a.createResponse))
	e.Any(pathResponses+"/compact", handle(inference.Only(http.MethodPost, a.compact)))
	e.Any(pathResponses+"/input_tokens", handle(inference.Only(http.MethodPost, a.countInput)))
	e.Any(pathResponses+"/*", handle(a.keptResponse))
	e.Any(pathConversations, handle(a.conversations))
	e.Any(pathConversations+"/*", handle(a.conversations))
	e.Any(pathFiles, handle(a.files))
	e.Any(pathFiles+"/*", handle(a.oneFile))
	e.Any(pathBatches, handle(a.batches))
	e.Any(pathBatches+"/*", handle(a.oneBatch))
	e.Any(pathModels, handleModels(a.listModels))
	e.Any(pathModels+"/*", handleModels(a.showModel))
	e.Any(prefix, handle(unknown))
	e.Any(prefix+"/*", handle(unknown))
}

func handle(h inference.Handler) echo.HandlerFunc { return inference.Handle(h, problem.OpenAI) }

// unknown answers what no route takes.
func unknown(_ http.ResponseWriter, r *http.Request, _ ids.ID) error {
	return fault.New(fault.NotFound, "There is nothing at %s %s. The API begins at %s.", r.Method, inference.Shown(r.URL.Path), pathChat).WithCode("unknown_path")
}

var chatDialect = gate.Dialect{
	Name:   "chat",
	Prefix: "chatcmpl-",
	Frame:  problem.OpenAIFrame,
	Answer: func(stream bool, p protocol.AnswerParams) protocol.Answer {
		if stream {
			return protocol.NewChatStream(p)
		}
		return protocol.NewChatWhole(p)
	},
}

func (a *API) chat(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	return a.generate(w, r, id, protocol.DecodeChat, &chatDialect)
}

var textDialect = gate.Dialect{
	Name:   "completion",
	Prefix: "cmpl-",
	Frame:  problem.OpenAIFrame,
	Answer: func(stream bool, p protocol.AnswerParams) protocol.Answer {
		if stream {
			return protocol.NewCompletionStream(p)
		}
		return protocol.NewCompletionWhole(p)
	},
}

func (a *API) text(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	return a.generate(w, r, id, protocol.DecodeCompletion, &textDialect)
}

func (a *API) generate(w http.ResponseWriter, r *http.Request, id ids.ID, decode func([]byte) (*protocol.ChatRequest, error), d *gate.Dialect) error {
	caller, body, err := a.Door.Enter(w, r)
	if err != nil {
		return err
	}
	defer inference.Give(body)
	req, err := decode(body)
	if err != nil {
		return err
	}
	if req.CacheKey == "" {
		req.CacheKey = inference.Session(r.Header)
	}
	ticket, err := a.Gate.Admit(r.Context(), gate.Request{ID: id, Caller: caller, Chat: req, Dialect: d})
	if err != nil {
		return err
	}
	inference.Warn(w.Header(), req.Ignored)
	ticket.Headers(w.Header())
	return ticket.Serve(r.Context(), w)
}
