package openai

import (
	"context"

	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/batch"
	"millrace/serving/gate"
	"millrace/serving/protocol"
	dialect "millrace/serving/protocol/responses"
	"millrace/serving/responses"
	"millrace/tenants/keys"
)

// BatchEndpoints is what lines of a batch can be requests of in OpenAI's dialects.
func BatchEndpoints(kept *responses.Service) batch.Endpoints {
	frame := func(err error, _ ids.ID) []byte { return problem.OpenAIFrame(err) }
	return batch.Endpoints{
		{Path: pathChat, Fail: frame,
			Check: func(body []byte) (batch.Asked, error) {
				chat, err := protocol.DecodeChat(body)
				if err != nil {
					return batch.Asked{}, err
				}
				return batch.Asked{Model: chat.Model, Stream: chat.Stream, Service: chat.Service}, nil
			},
			Prepare: func(_ context.Context, _ ids.ID, _ keys.Principal, body []byte) (batch.Prepared, error) {
				chat, err := protocol.DecodeChat(body)
				return batch.Prepared{Request: gate.Request{Chat: chat, Dialect: &chatDialect}}, err
			}},
		{Path: pathResponses, Fail: frame, Check: checkResponse,
			Prepare: func(ctx context.Context, id ids.ID, caller keys.Principal, body []byte) (batch.Prepared, error) {
				req, err := dialect.Decode(body)
				if err != nil {
					return batch.Prepared{}, err
				}
				p, err := kept.Prepare(ctx, responses.Call{ID: id, Caller: caller, Request: req, Batch: true}, nil)
				if err != nil {
					return batch.Prepared{}, err
				}
				return batch.Prepared{Request: p.Admission(kept), Say: dialect.Translate}, nil
			}},
	}
}

// checkResponse refuses what has no meaning in a batch, whose lines run in no order and for nobody who waits.
func checkResponse(body []byte) (batch.Asked, error) {
	req, err := dialect.Decode(body)
	switch {
	case err != nil:
		return batch.Asked{}, err
	case req.Background:
		return batch.Asked{}, fault.New(fault.Invalid, "A batch is in the background already: leave background out.").WithParam("background")
	case req.Conversation != "":
		return batch.Asked{}, fault.New(fault.Invalid, "Lines of a batch run in no order, so they cannot extend a conversation.").WithParam("conversation")
	}
	asked := batch.Asked{Model: req.Model, Stream: req.Stream}
	if req.Priority() {
		asked.Service = usage.Priority
	}
	return asked, nil
}
