package openai

import (
	"net/http"
	"strconv"
	"strings"

	"millrace/api/inference"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine/scan"
	dialect "millrace/serving/protocol/responses"
	"millrace/serving/responses"
	"millrace/tenants/keys"
)

// keptResponse answers what is asked of one response: /v1/responses/{id}, and /cancel and /input_items below it.
func (a *API) keptResponse(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	response, action, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, pathResponses+"/"), "/")
	want := http.MethodGet
	switch action {
	case "":
		if r.Method == http.MethodDelete {
			want = http.MethodDelete
		}
	case "cancel":
		want = http.MethodPost
	case "input_items":
	default:
		return unknown(w, r, id)
	}
	if r.Method != want && !(r.Method == http.MethodHead && want == http.MethodGet) {
		return wrongMethod(w, r, map[string][]string{"": {http.MethodGet, http.MethodDelete}, "cancel": {http.MethodPost}, "input_items": {http.MethodGet}}[action]...)
	}
	caller, err := a.visit(r)
	if err != nil {
		return err
	}
	switch {
	case action == "cancel":
		object, err := a.Responses.Cancel(r.Context(), caller, response)
		if err != nil {
			return err
		}
		return writeRaw(w, object)
	case action == "input_items":
		page, err := pageOf(r)
		if err != nil {
			return err
		}
		list, err := a.Responses.InputItems(r.Context(), caller, response, page)
		if err != nil {
			return err
		}
		return writeList(w, list)
	case want == http.MethodDelete:
		if err := a.Responses.Delete(r.Context(), caller, response); err != nil {
			return err
		}
		return inference.WriteJSON(w, map[string]any{"id": response, "object": "response", "deleted": true})
	}
	return a.showResponse(w, r, caller, response)
}

// showResponse gives a response, or its events from a number on.
func (a *API) showResponse(w http.ResponseWriter, r *http.Request, caller keys.Principal, response string) error {
	query := r.URL.Query()
	if query.Get("stream") == "true" {
		after := int64(-1)
		if text := query.Get("starting_after"); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 || n >= 1<<53 {
				return fault.New(fault.Invalid, "starting_after must be the sequence_number of an event.").WithParam("starting_after")
			}
			after = n
		}
		return a.Responses.Follow(r.Context(), caller, response, after, w)
	}
	object, err := a.Responses.Get(r.Context(), caller, response)
	if err != nil {
		return err
	}
	return writeRaw(w, object)
}

// pageOf reads after, limit and order.
func pageOf(r *http.Request) (responses.Page, error) {
	query := r.URL.Query()
	p := responses.Page{After: query.Get("after")}
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > responses.MaxPage {
			return p, fault.New(fault.Invalid, "limit must be between 1 and %d.", responses.MaxPage).WithParam("limit")
		}
		p.Limit = n
	}
	switch query.Get("order") {
	case "", "desc":
	case "asc":
		p.Ascending = true
	default:
		return p, fault.New(fault.Invalid, "order must be asc or desc.").WithParam("order")
	}
	return p, nil
}

// writeList answers with a page of items.
func writeList(w http.ResponseWriter, list responses.List) error {
	out := []byte(`{"object":"list","data":[`)
	for i, item := range list.Items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	out = append(out, `],"first_id":`...)
	if n := len(list.Items); n == 0 {
		out = append(out, `null,"last_id":null`...)
	} else {
		out = scan.Quote(out, dialect.Text(dialect.Member(list.Items[0], "id")))
		out = scan.Quote(append(out, `,"last_id":`...), dialect.Text(dialect.Member(list.Items[n-1], "id")))
	}
	out = strconv.AppendBool(append(out, `,"has_more":`...), list.More)
	return writeRaw(w, append(out, '}'))
}
