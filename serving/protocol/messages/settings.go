package messages

import (
	"encoding/json"
	"strings"

	"millrace/internal/usage"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// minBudget is the least thinking budget that Anthropic's API takes, in tokens.
const minBudget = 1024

// Budgets up to these become these efforts: engines think by effort, not by tokens.
const (
	lowBudget    = 4 << 10
	mediumBudget = 16 << 10
)

// efforts are what output_config.effort may be.
var efforts = []string{"low", "medium", "high", "xhigh", "max"}

// thinking writes how much is to be thought; output_config.effort says it better where it is given.
func (r *reader) thinking() error {
	var kind, display, effort, configured []byte
	budget := int64(-1)
	v := r.members["thinking"]
	if v != nil {
		err := object(v, func(name, v []byte) (err error) {
			switch string(name) {
			case "type":
				kind, err = text("type", v)
			case "display":
				display, err = text("display", v)
			case "budget_tokens":
				budget, err = integer("budget_tokens", v, minBudget, usage.MaxTokens)
			default:
				r.ignored.Add("thinking.", name)
			}
			return err
		})
		if err == nil {
			effort, err = r.thinkingEffort(string(kind), string(display), budget)
		}
		if err != nil {
			return field.Within("thinking", err)
		}
	}
	if raw := field.Member(r.members["output_config"], "effort"); raw != nil {
		var err error
		if configured, err = text("output_config.effort", raw); err != nil {
			return err
		}
		if !contains(efforts, configured) {
			return wantOneOf("output_config.effort", efforts...)
		}
		if string(effort) != "none" {
			effort = configured
		}
	}
	if effort != nil {
		r.put("reasoning_effort", []byte(`"`+string(effort)+`"`))
	}
	return nil
}

func (r *reader) thinkingEffort(kind, display string, budget int64) (effort []byte, err error) {
	switch display {
	case "", "summarized":
	case "omitted":
		r.req.view.omit = true
	default:
		return nil, wantOneOf("display", "summarized", "omitted")
	}
	switch kind {
	case "disabled":
		r.req.view.hide = true
		return []byte("none"), nil
	case "adaptive", "between_tools":
		r.thinks = true
		return nil, nil
	case "enabled":
		r.thinks = true
	case "":
		return nil, required("type")
	default:
		return nil, wantOneOf("type", "enabled", "adaptive", "disabled")
	}
	if budget < 0 {
		return nil, required("budget_tokens")
	}
	if most, err := integer("max_tokens", r.members["max_tokens"], 1, usage.MaxTokens); err == nil && budget >= most {
		return nil, field.Invalid("budget_tokens", "It must be less than max_tokens.")
	}
	switch {
	case budget <= lowBudget:
		return []byte("low"), nil
	case budget <= mediumBudget:
		return []byte("medium"), nil
	}
	return []byte("high"), nil
}

var formatMembers = []string{"type", "schema"}

// outputConfig writes the schema that the answer must follow; thinking has the effort.
func (r *reader) outputConfig() error {
	format, at := r.members["output_format"], "output_format" // its name before output_config
	if v := r.members["output_config"]; v != nil {
		err := object(v, func(name, v []byte) error {
			switch string(name) {
			case "effort":
			case "format":
				format, at = v, "output_config.format"
			default:
				r.ignored.Add("output_config.", name)
			}
			return nil
		})
		if err != nil {
			return field.Within("output_config", err)
		}
	}
	if format == nil {
		return nil
	}
	var in [2][]byte
	if err := field.Read(format, formatMembers, in[:], func(name []byte) { r.ignored.Add(at+".", name) }); err != nil {
		return field.Within(at, err)
	}
	if string(in[0]) != `"json_schema"` {
		return wantOneOf(at+".type", "json_schema")
	}
	schema := in[1]
	if !field.IsObject(schema) {
		return field.Invalid(at+".schema", "It must be an object.")
	}
	r.put("response_format", []byte(`{"type":"json_schema","json_schema":{"name":"response","strict":true,"schema":`+string(schema)+`}}`))
	r.history.more += int64(len(schema))
	return nil
}

// sampling writes what engines know by nearly the same names.
func (r *reader) sampling() error {
	for _, name := range []string{"temperature", "top_p"} {
		if v := r.members[name]; v != nil {
			if err := fraction(name, v); err != nil {
				return err
			}
			r.put(name, v)
		}
	}
	if v := r.members["top_k"]; v != nil {
		n, err := integer("top_k", v, 0, 1<<30)
		if err != nil {
			return err
		}
		if n > 0 { // none is no limit, which engines say by leaving it out
			r.put("top_k", v)
		}
	}
	v := r.members["stop_sequences"]
	if v == nil {
		return nil
	}
	err := list(v, protocol.MaxBuiltStops, func(_ int, raw []byte) error {
		s, err := needed("", raw)
		if err == nil {
			r.req.view.stops = append(r.req.view.stops, unescaped(s))
		}
		return err
	})
	if err != nil {
		return field.Within("stop_sequences", err)
	}
	if len(r.req.view.stops) > 0 {
		r.put("stop", v)
	}
	return nil
}

// others writes stream, and checks what has no place in the chat body.
func (r *reader) others() error {
	if v := r.members["stream"]; v != nil {
		streamed, err := boolean("stream", v)
		if err != nil {
			return err
		}
		if streamed {
			r.put("stream", v)
		}
	}
	if v := r.members["service_tier"]; v != nil && string(v) != `"auto"` && string(v) != `"standard_only"` {
		return wantOneOf("service_tier", "auto", "standard_only")
	}
	if v := r.members["metadata"]; v != nil {
		var user [1][]byte // session reads it
		if err := field.Read(v, []string{"user_id"}, user[:], func(name []byte) { r.ignored.Add("metadata.", name) }); err != nil {
			return field.Within("metadata", err)
		}
	}
	return r.contextManagement()
}

// contextManagement takes edits that only clear what is old: a prompt that keeps it is right too. Others would change the
// conversation that the client goes on with.
func (r *reader) contextManagement() error {
	const name = "context_management"
	v := r.members[name]
	if v == nil {
		return nil
	}
	if !field.IsObject(v) {
		return field.Invalid(name, "It must be an object.")
	}
	r.ignored.Name(name)
	edits := field.Member(v, "edits")
	if edits == nil {
		return nil
	}
	return field.Within(name, field.Within("edits", list(edits, maxBlocks, func(_ int, raw []byte) error {
		if kind := field.Member(raw, "type"); !field.IsString(kind) || !strings.HasPrefix(string(kind), `"clear_`) {
			return field.Unsupported("type", "Only edits that clear something (clear_…) are taken, and have no effect.")
		}
		return nil
	})))
}

// maxSession bounds a session's name, in bytes.
const maxSession = 512

// session is the hint for routing: session_id, as clients of several APIs send it, or what metadata.user_id gives. Claude Code writes JSON with a session_id into it, and
// user_…_session_… before that; of any other, the user is the session.
func (r *reader) session() string {
	if own := r.members["session_id"]; field.IsString(own) && len(own) <= maxSession {
		return unescaped(own[1 : len(own)-1])
	}
	id := field.Member(r.members["metadata"], "user_id")
	if !field.IsString(id) || len(id) > 2*maxSession {
		return ""
	}
	name := unescaped(id[1 : len(id)-1])
	var claude struct {
		Session string `json:"session_id"`
	}
	if strings.HasPrefix(name, "{") && json.Unmarshal([]byte(name), &claude) == nil && claude.Session != "" {
		return claude.Session
	}
	if _, session, found := strings.Cut(name, "_session_"); found && session != "" {
		return session
	}
	return name
}
