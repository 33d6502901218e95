package openai

import (
	"net/http"

	"millrace/api/inference"
	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/gate"
	"millrace/serving/protocol"
	"millrace/serving/protocol/responses"
)

const pathResponses = "/v1/responses"

// responses answers POST /v1/responses.
func (a *API) responses(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	caller, body, err := a.Door.Enter(w, r)
	if err != nil {
		return err
	}
	defer inference.Give(body)
	req, err := responses.Decode(body)
	if err != nil {
		return err
	}
	if err := stateless(req); err != nil {
		return err
	}
	seal := &protocol.ReasoningSeal{Sealer: a.Sealer, Org: caller.Org}
	chat, err := req.Chat(&responses.Context{Seal: seal})
	if err != nil {
		return err
	}
	if chat.CacheKey == "" {
		chat.CacheKey = inference.Session(r.Header)
	}
	answers := responses.Answers{Request: req, Now: a.Door.Clock.Now, Seal: seal}
	ticket, err := a.Gate.Admit(r.Context(), gate.Request{ID: id, Caller: caller, Chat: chat, Dialect: responsesDialect(&answers)})
	if err != nil {
		return responses.Translate(err)
	}
	inference.Warn(w.Header(), chat.Ignored)
	ticket.Headers(w.Header())
	return responses.Translate(ticket.Serve(r.Context(), w))
}

func responsesDialect(answers *responses.Answers) *gate.Dialect {
	return &gate.Dialect{Name: "responses", Prefix: responses.ResponsePrefix, Frame: problem.OpenAIFrame, Answer: answers.New}
}

// stateless refuses what needs a response that is kept.
func stateless(req *responses.Request) error {
	switch {
	case req.Previous != "":
		return fault.New(fault.NotFound, "Previous response with id %q not found.", inference.Shown(req.Previous)).
			WithCode("previous_response_not_found").WithParam("previous_response_id")
	case req.Conversation != "":
		return fault.New(fault.NotFound, "Conversation with id %q not found.", inference.Shown(req.Conversation)).WithParam("conversation")
	case req.Background:
		return fault.New(fault.Invalid, "Responses are not made in the background here.").WithCode("unsupported_parameter").WithParam("background")
	}
	return nil
}
