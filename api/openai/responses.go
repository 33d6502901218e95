package openai

import (
	"bytes"
	"net/http"
	"strings"

	"millrace/api/inference"
	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/protocol"
	dialect "millrace/serving/protocol/responses"
	"millrace/serving/responses"
)

const pathResponses = "/v1/responses"

// createResponse answers POST /v1/responses; a GET there opens a WebSocket.
func (a *API) createResponse(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	if r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return a.socket(w, r)
	}
	if r.Method != http.MethodPost {
		return wrongMethod(w, r, http.MethodPost)
	}
	caller, body, err := a.Door.Enter(w, r)
	if err != nil {
		return err
	}
	defer inference.Give(body)
	req, err := dialect.Decode(body)
	if err == nil && req.Background { // it outlives this request and its buffer
		req, err = dialect.Decode(bytes.Clone(body))
	}
	if err != nil {
		return err
	}
	p, err := a.Responses.Prepare(r.Context(), responses.Call{ID: id, Caller: caller, Request: req, Session: inference.Session(r.Header)}, nil)
	if err != nil {
		return err
	}
	if req.Background {
		return dialect.Translate(a.startResponse(w, r, p))
	}
	for {
		if err := a.respond(w, r, p); !p.Shorten(err) {
			return dialect.Translate(err)
		}
	}
}

// respond tries to answer. An error means that nothing was written.
func (a *API) respond(w http.ResponseWriter, r *http.Request, p *responses.Prepared) error {
	request := p.Admission(a.Responses)
	ticket, err := a.Gate.Admit(r.Context(), request)
	if err != nil {
		return err
	}
	w.Header()[problem.HeaderRequestID] = []string{ids.Format(ids.Request, request.ID)} // the one that is charged
	inference.Warn(w.Header(), p.Chat.Ignored)
	ticket.Headers(w.Header())
	return ticket.Serve(r.Context(), w)
}

// startResponse answers a request for a response in the background: with its object, or with its events as they come.
func (a *API) startResponse(w http.ResponseWriter, r *http.Request, p *responses.Prepared) error {
	ignored := p.Chat.Ignored // p is the run's once it has begun
	object, err := a.Responses.Start(r.Context(), p)
	if err != nil {
		return err
	}
	inference.Warn(w.Header(), ignored)
	if p.Request.Stream {
		return a.Responses.Follow(r.Context(), p.Caller, ids.Format("resp", p.ID), -1, w)
	}
	return writeRaw(w, object)
}

// writeRaw answers with JSON that is there already.
func writeRaw(w http.ResponseWriter, object []byte) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(object, '\n')) // a failed write means that the caller has gone
	return nil
}

// compact answers POST /v1/responses/compact.
func (a *API) compact(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	caller, body, err := a.Door.Enter(w, r)
	if err != nil {
		return err
	}
	defer inference.Give(body)
	req, err := dialect.Decode(body)
	if err != nil {
		return err
	}
	admission, err := a.Responses.Compact(r.Context(), responses.Call{ID: id, Caller: caller, Request: req, Session: inference.Session(r.Header)})
	if err != nil {
		return err
	}
	ticket, err := a.Gate.Admit(r.Context(), admission)
	if err != nil {
		return dialect.Translate(err)
	}
	inference.Warn(w.Header(), admission.Chat.Ignored)
	ticket.Headers(w.Header())
	return dialect.Translate(ticket.Serve(r.Context(), w))
}

// countInput answers POST /v1/responses/input_tokens: what the input of a request comes to.
func (a *API) countInput(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	caller, body, err := a.Door.Enter(w, r)
	if err != nil {
		return err
	}
	defer inference.Give(body)
	req, err := dialect.Decode(body)
	if err != nil {
		return err
	}
	p, err := a.Responses.Prepare(r.Context(), responses.Call{ID: id, Caller: caller, Request: req}, nil)
	if err != nil {
		return err
	}
	count, err := a.Gate.CountTokens(r.Context(), p.Admission(a.Responses), protocol.EstimateTokens(p.Chat.TextBytes))
	if err != nil {
		return dialect.Translate(err)
	}
	inference.Warn(w.Header(), p.Chat.Ignored)
	return inference.WriteJSON(w, map[string]any{"object": "response.input_tokens", "input_tokens": count.Tokens})
}

func wrongMethod(w http.ResponseWriter, r *http.Request, allowed ...string) error {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return fault.New(fault.Method, "%s takes %s, not %s.", inference.Shown(r.URL.Path), strings.Join(allowed, " or "), r.Method)
}
