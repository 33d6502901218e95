package openai

import (
	"net/http"
	"strings"

	"millrace/api/inference"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/tenants/keys"
)

// model is a model as OpenAI lists it.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Context int64  `json:"context_window"`
	Output  int64  `json:"max_output_tokens"`
	// Pricing is null for a model without a price: it cannot be called.
	Pricing *pricing `json:"pricing"`
}

func (a *API) shownModel(caller *keys.Principal, m *catalogue.Model) (model, error) {
	p, err := a.pricingOf(caller, m)
	return model{ID: m.Name, Object: "model", Created: m.Created.Unix(), OwnedBy: "millrace", Context: m.Context, Output: m.MaxOutput, Pricing: p}, err
}

func (a *API) listModels(w http.ResponseWriter, r *http.Request, _ ids.ID) error {
	caller, err := a.Door.Authenticate(r)
	if err != nil {
		return err
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list", Data: []model{}}
	for _, m := range a.Models.Models() {
		shown, err := a.shownModel(&caller, m)
		if err != nil {
			return err
		}
		list.Data = append(list.Data, shown)
	}
	return inference.WriteJSON(w, list)
}

func (a *API) showModel(w http.ResponseWriter, r *http.Request, _ ids.ID) error {
	caller, err := a.Door.Authenticate(r)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(r.URL.Path, pathModels+"/")
	m, known := a.Models.Model(name)
	if !known {
		return fault.New(fault.NotFound, "The model %q does not exist. GET /v1/models lists those that do.", inference.Shown(name)).
			WithCode("model_not_found").WithParam("model")
	}
	one, err := a.shownModel(&caller, m)
	if err != nil {
		return err
	}
	return inference.WriteJSON(w, one)
}
