package openai

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/api/inference"
	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/tenants/keys"
)

// model is a model as OpenAI lists it and as Anthropic does, in one object: SDKs of both read it.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Context int64  `json:"context_window"`
	Output  int64  `json:"max_output_tokens"`
	// Pricing is null for a model without a price: it cannot be called.
	Pricing *pricing `json:"pricing"`

	Type      string    `json:"type"`
	Display   string    `json:"display_name"`
	CreatedAt time.Time `json:"created_at"`
	Lifecycle string    `json:"lifecycle"`
	MaxInput  int64     `json:"max_input_tokens"`
	MaxTokens int64     `json:"max_tokens"`
}

func (a *API) shownModel(caller *keys.Principal, m *catalogue.Model) (model, error) {
	p, err := a.pricingOf(caller, m)
	display := m.DisplayName
	if display == "" {
		display = m.Name
	}
	return model{ID: m.Name, Object: "model", Created: m.Created.Unix(), OwnedBy: "millrace", Context: m.Context, Output: m.MaxOutput, Pricing: p,
		Type: "model", Display: display, CreatedAt: m.Created.UTC().Truncate(time.Second), Lifecycle: "active", MaxInput: m.Context, MaxTokens: m.MaxOutput}, err
}

// modelList is a page of models in both shapes. OpenAI's list has one page.
type modelList struct {
	Object  string  `json:"object"`
	Data    []model `json:"data"`
	HasMore bool    `json:"has_more"`
	First   *string `json:"first_id"`
	Last    *string `json:"last_id"`
}

func (a *API) listModels(w http.ResponseWriter, r *http.Request, _ ids.ID) error {
	caller, err := a.Door.Authenticate(r)
	if err != nil {
		return err
	}
	models, more, err := modelPage(a.Models.Models(), r)
	if err != nil {
		return err
	}
	list := modelList{Object: "list", Data: []model{}, HasMore: more}
	for _, m := range models {
		shown, err := a.shownModel(&caller, m)
		if err != nil {
			return err
		}
		list.Data = append(list.Data, shown)
	}
	if n := len(list.Data); n > 0 {
		list.First, list.Last = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return inference.WriteJSON(w, list)
}

// Pages of Anthropic's list.
const (
	usualPage = 20
	maxPage   = 1000
)

// modelPage cuts the page out that a client of Anthropic's API asks for; any other client gets all where it asks for no page.
func modelPage(all []*catalogue.Model, r *http.Request) (page []*catalogue.Model, more bool, err error) {
	query := r.URL.Query()
	limit, after, before := query.Get("limit"), query.Get("after_id"), query.Get("before_id")
	size := len(all)
	if ofAnthropic(r) {
		size = usualPage
	}
	if limit != "" {
		if size, err = strconv.Atoi(limit); err != nil || size < 1 || size > maxPage {
			return nil, false, fault.New(fault.Invalid, "limit is a number from 1 to %d.", maxPage).WithParam("limit")
		}
	}
	at := func(name, id string) (int, error) {
		i := slices.IndexFunc(all, func(m *catalogue.Model) bool { return m.Name == id })
		if i < 0 {
			return 0, fault.New(fault.Invalid, "There is no model %q.", inference.Shown(id)).WithParam(name)
		}
		return i, nil
	}
	switch {
	case after != "" && before != "":
		return nil, false, fault.New(fault.Invalid, "after_id and before_id exclude each other.").WithParam("before_id")
	case before != "":
		end, err := at("before_id", before)
		if err != nil {
			return nil, false, err
		}
		start := max(end-size, 0)
		return all[start:end], start > 0, nil
	case after != "":
		i, err := at("after_id", after)
		if err != nil {
			return nil, false, err
		}
		all = all[i+1:]
	}
	return all[:min(size, len(all))], len(all) > size, nil
}

// ofAnthropic tells which of the two APIs a client of the models speaks.
func ofAnthropic(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// handleModels says errors, and the request's id, as the client's API does.
func handleModels(h inference.Handler) echo.HandlerFunc {
	return inference.Handle(func(w http.ResponseWriter, r *http.Request, id ids.ID) error {
		if ofAnthropic(r) {
			w.Header()[problem.HeaderAnthropicID] = w.Header()[problem.HeaderRequestID]
		}
		return inference.Only(http.MethodGet, h)(w, r, id)
	}, func(w http.ResponseWriter, r *http.Request, err error) {
		if ofAnthropic(r) {
			problem.Anthropic(w, r, err)
		} else {
			problem.OpenAI(w, r, err)
		}
	})
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
