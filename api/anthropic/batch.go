package anthropic

import (
	"context"

	"millrace/api/problem"
	"millrace/internal/ids"
	"millrace/serving/batch"
	"millrace/serving/gate"
	"millrace/serving/protocol"
	"millrace/serving/protocol/messages"
	"millrace/tenants/keys"
)

// BatchEndpoint lets lines of a batch be requests of Messages.
func (a *API) BatchEndpoint() batch.Endpoint {
	return batch.Endpoint{Path: pathMessages,
		Fail: func(err error, id ids.ID) []byte { return problem.AnthropicFrame(err, ids.Format(ids.Request, id)) },
		Check: func(body []byte) (batch.Asked, error) {
			req, err := messages.Decode(body, messages.Options{Seal: protocol.ReasoningSeal{Sealer: a.Sealer}})
			if err != nil {
				return batch.Asked{}, err
			}
			return batch.Asked{Model: req.Chat.Model, Stream: req.Chat.Stream, Service: req.Chat.Service}, nil
		},
		Prepare: func(_ context.Context, id ids.ID, caller keys.Principal, body []byte) (batch.Prepared, error) {
			req, err := messages.Decode(body, messages.Options{Seal: protocol.ReasoningSeal{Sealer: a.Sealer, Org: caller.Org}})
			if err == nil {
				err = a.canPrefill(req)
			}
			if err != nil {
				return batch.Prepared{}, err
			}
			return batch.Prepared{Request: gate.Request{Chat: req.Chat, Dialect: dialect(req, id)}, Say: func(err error) error { return say(req, err) }}, nil
		}}
}
