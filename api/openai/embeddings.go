package openai

import (
	"net/http"

	"millrace/api/problem"
	"millrace/internal/ids"
	"millrace/serving/gate"
	"millrace/serving/protocol"
)

const pathEmbeddings = "/v1/embeddings"

// embeddingDialect has no answers: the gate passes on what comes.
var embeddingDialect = gate.Dialect{
	Name:  "embedding",
	Frame: problem.OpenAIFrame,
	Answer: func(_ bool, p protocol.AnswerParams) protocol.Answer {
		return protocol.NewChatWhole(p)
	},
}

func (a *API) embeddings(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	return a.generate(w, r, id, protocol.DecodeEmbedding, &embeddingDialect)
}
