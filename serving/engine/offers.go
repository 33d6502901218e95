package engine

import (
	"context"
	"encoding/json"
	"net/http"

	"millrace/internal/fault"
)

// Offer is a model that an engine says it serves.
type Offer struct {
	Model   string // the engine's own name for it
	Context int64  // tokens of prompt and answer together; 0 = the engine does not tell
}

// AssumedContext is the context of a model whose engine does not tell, in tokens.
const AssumedContext = 131_072

// Keyed is a client that shows a key, if there is one, to the address that it is asked to call and follows no redirect: the
// key is for that address alone. Deadlines come by context.
func Keyed(key string) *http.Client {
	return &http.Client{Transport: bearer(key), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type bearer string

// RoundTrip implements http.RoundTripper.
func (k bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if k != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(k))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Offers asks an engine or provider what it serves, the first model first.
func Offers(ctx context.Context, c *http.Client, base string) ([]Offer, error) {
	answer, err := call(ctx, c, http.MethodGet, base+"/v1/models", nil, maxAnswerBytes)
	if err != nil {
		return nil, err
	}
	var list struct {
		Data []struct {
			ID     string `json:"id"`
			MaxLen int64  `json:"max_model_len"` // vLLM, SGLang
			Meta   struct {
				Context int64 `json:"n_ctx_train"` // llama.cpp
			} `json:"meta"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fault.Wrap(err, fault.Upstream, "The engine's list of models cannot be read.")
	}
	offers := make([]Offer, 0, len(list.Data))
	for _, m := range list.Data {
		if m.ID != "" {
			offers = append(offers, Offer{Model: m.ID, Context: max(m.MaxLen, m.Meta.Context, 0)})
		}
	}
	return offers, nil
}
