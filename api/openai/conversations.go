package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/api/inference"
	"millrace/internal/fault"
	"millrace/internal/ids"
	dialect "millrace/serving/protocol/responses"
	"millrace/serving/responses"
	"millrace/tenants/keys"
)

const pathConversations = "/v1/conversations"

// conversations answers /v1/conversations and all below it.
func (a *API) conversations(w http.ResponseWriter, r *http.Request, id ids.ID) error {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, pathConversations), "/"), "/")
	var allowed []string
	switch {
	case len(parts) == 1 && parts[0] == "":
		allowed = []string{http.MethodPost}
	case len(parts) == 1:
		allowed = []string{http.MethodGet, http.MethodPost, http.MethodDelete}
	case len(parts) == 2 && parts[1] == "items":
		allowed = []string{http.MethodGet, http.MethodPost}
	case len(parts) == 3 && parts[1] == "items":
		allowed = []string{http.MethodGet, http.MethodDelete}
	default:
		return unknown(w, r, id)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if !slices.Contains(allowed, method) {
		return wrongMethod(w, r, allowed...)
	}
	if method == http.MethodPost {
		return a.changeConversation(w, r, parts)
	}
	caller, err := a.visit(r)
	if err != nil {
		return err
	}
	return a.readConversation(w, r, method, caller, parts)
}

// changeConversation answers what has a body.
func (a *API) changeConversation(w http.ResponseWriter, r *http.Request, parts []string) error {
	caller, body, err := a.visitWithBody(w, r)
	if err != nil {
		return err
	}
	defer inference.Give(body)
	var in struct {
		Metadata json.RawMessage `json:"metadata"`
		Items    json.RawMessage `json:"items"`
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &in); err != nil || !utf8.Valid(body) {
			return fault.New(fault.Invalid, "The request body must be a JSON object.").WithCode("invalid_json")
		}
	}
	metadata, items := given(in.Metadata), given(in.Items)
	if metadata != nil {
		if err := dialect.CheckMetadata("metadata", metadata); err != nil {
			return err
		}
	}
	if len(parts) == 2 {
		if items == nil {
			return fault.New(fault.Invalid, "You must provide items.").WithParam("items").WithCode("missing_required_parameter")
		}
		list, err := a.Responses.AddItems(r.Context(), caller, parts[0], items)
		if err != nil {
			return err
		}
		return writeList(w, list)
	}
	var c responses.Conversation
	if parts[0] == "" {
		c, err = a.Responses.CreateConversation(r.Context(), caller, metadata, items)
	} else if metadata == nil {
		return fault.New(fault.Invalid, "You must provide metadata.").WithParam("metadata").WithCode("missing_required_parameter")
	} else {
		c, err = a.Responses.UpdateConversation(r.Context(), caller, parts[0], metadata)
	}
	if err != nil {
		return err
	}
	return writeConversation(w, c)
}

// given is a member that is neither absent nor null.
func given(raw json.RawMessage) []byte {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return raw
}

func (a *API) readConversation(w http.ResponseWriter, r *http.Request, method string, caller keys.Principal, parts []string) error {
	ctx, id := r.Context(), parts[0]
	switch {
	case len(parts) == 1 && method == http.MethodDelete:
		if err := a.Responses.DeleteConversation(ctx, caller, id); err != nil {
			return err
		}
		return inference.WriteJSON(w, map[string]any{"id": id, "object": "conversation.deleted", "deleted": true})
	case len(parts) == 2:
		page, err := pageOf(r)
		if err != nil {
			return err
		}
		list, err := a.Responses.Items(ctx, caller, id, page)
		if err != nil {
			return err
		}
		return writeList(w, list)
	case len(parts) == 3 && method == http.MethodGet:
		item, err := a.Responses.Item(ctx, caller, id, parts[2])
		if err != nil {
			return err
		}
		return writeRaw(w, item)
	}
	find := a.Responses.GetConversation
	if len(parts) == 3 {
		find = func(ctx context.Context, by keys.Principal, id string) (responses.Conversation, error) {
			return a.Responses.DeleteItem(ctx, by, id, parts[2])
		}
	}
	c, err := find(ctx, caller, id)
	if err != nil {
		return err
	}
	return writeConversation(w, c)
}

func writeConversation(w http.ResponseWriter, c responses.Conversation) error {
	return inference.WriteJSON(w, map[string]any{"id": c.ID, "object": "conversation", "created_at": c.Created.Unix(), "metadata": json.RawMessage(c.Metadata)})
}
