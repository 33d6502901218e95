package sim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/engine/tok"
)

// request is a generation asked for, of chat or of text completions.
type request struct {
	chat       bool
	model      string
	prompts    [][]uint32 // one for chat; one or more for completions
	stream     bool
	lastUsage  bool // usage on a last chunk
	everyUsage bool // usage on every chunk
	maxTokens  int  // 0 = not said
	minTokens  int
	n          int // answers per prompt
	stops      []string
	ignoreEnd  bool
	think      bool
	effort     string
	salt       string
	rank       int
	dataRank   int // the data-parallel rank that shall compute it; anyRank = the engine's choice
	id         string
	seed       uint64
	tools      []tool
	toolChoice json.RawMessage
	format     format
	forced     bool   // tool_choice names a function
	messages   []byte // of a chat, raw
	transfer   transfer
	bootstrap  bootstrap
	disagg     *disagg
	hand       handing
	offer      *offer // of its cache to a peer
	taken      bool   // its prompt's cache has come from a peer
	resume     *resuming
	goesOn     bool // the last message is to be continued
	scripted   *scripted
	raw        *continuation // of segments, for the engine behind DeepInfer's adapter
}

// transfer is vLLM's kv_transfer_params as its NIXL and Mooncake connectors read them.
type transfer struct {
	RemoteDecode  bool   `json:"do_remote_decode"`
	RemotePrefill bool   `json:"do_remote_prefill"`
	Engine        string `json:"remote_engine_id"`
	Request       string `json:"remote_request_id"`
	Host          string `json:"remote_host"`
	Port          int    `json:"remote_port"`
	Mode          string `json:"transfer_mode"`
	TransferID    string `json:"transfer_id"`           // Mooncake's
	Bootstrap     string `json:"remote_bootstrap_addr"` // likewise
}

// pulls tells whether the prompt's cache can be fetched. A missing coordinate means a silent recompute, as in vLLM.
func (t transfer) pulls(own string) bool {
	return t.RemotePrefill && t.Engine != "" && t.Engine != own && t.Request != "" && t.Host != "" && t.Port > 0
}

// scripted is an answer that a test prescribes, in the request's field "sim" or the header X-Sim.
type scripted struct {
	Text      string `json:"text"`
	Reasoning string `json:"reasoning"`
	ToolCalls []struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"tool_calls"`
	Tokens int `json:"tokens"` // exact length of the answer; 0 = as long as the text
}

// Limits of a request.
const (
	maxBodyBytes = 64 << 20
	maxN         = 16
	maxPrompts   = 16
	maxStops     = 16
)

func invalid(param, format string, args ...any) error {
	return fault.New(fault.Invalid, format, args...).WithParam(param)
}

// parse reads a body. Limits of the model are checked afterwards, by fit.
func (e *Engine) parse(r *http.Request, body []byte, chat bool) (*request, error) {
	if !json.Valid(body) {
		return nil, invalid("body", "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body', 'msg': 'JSON decode error'}")
	}
	q := &request{chat: chat, n: 1, bootstrap: bootstrap{room: -1}, id: r.Header.Get("X-Request-Id"), dataRank: wantsRank(r)}
	m := scan.Object(body)
	for m.Next() {
		if string(m.Key) == "sim" && e.cfg.Faults {
			if err := json.Unmarshal(m.Value, &q.scripted); err != nil {
				return nil, invalid("sim", "sim is not an answer to give: %v", err)
			}
			continue
		}
		known, err := e.voice.takes(q, string(m.Key), m.Value)
		if err == nil && known {
			err = q.member(string(m.Key), m.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	if m.Err() != nil {
		return nil, invalid("body", "1 validation error:\n  {'type': 'model_attributes_type', 'msg': 'Input should be a valid dictionary'}")
	}
	if h := r.Header.Get("X-Sim"); h != "" && e.cfg.Faults {
		if err := json.Unmarshal([]byte(h), &q.scripted); err != nil {
			return nil, invalid("X-Sim", "X-Sim is not an answer to give: %v", err)
		}
	}
	if chat {
		ids, err := tok.ApplyChat(body)
		if err != nil {
			return nil, err
		}
		if len(q.prompts) == 0 { // else it came with its token ids
			q.prompts = [][]uint32{ids}
		}
		if q.goesOn {
			if q.resume, ids, err = resumes(body); err != nil {
				return nil, err
			}
			if q.resume != nil {
				q.prompts = [][]uint32{ids}
			}
		}
	}
	if len(q.prompts) == 0 {
		return nil, invalid("prompt", "A prompt is required.")
	}
	return q, e.fit(q)
}

// member reads one top-level member; unknown ones are ignored.
func (q *request) member(key string, v []byte) (err error) {
	if string(v) == "null" {
		return nil
	}
	switch key {
	case "model":
		q.model, err = text(key, v)
	case "stream":
		q.stream = string(v) == "true"
	case "stream_options":
		o := scan.Object(v)
		for o.Next() {
			switch string(o.Key) {
			case "include_usage":
				q.lastUsage = string(o.Value) == "true"
			case "continuous_usage_stats":
				q.everyUsage = string(o.Value) == "true"
			}
		}
	case "max_completion_tokens":
		q.maxTokens, err = number(key, v, 1)
	case "max_tokens":
		var n int
		if n, err = number(key, v, 1); q.maxTokens == 0 {
			q.maxTokens = n
		}
	case "min_tokens":
		q.minTokens, err = number(key, v, 0)
	case "n":
		if q.n, err = number(key, v, 1); err == nil && q.n > maxN {
			err = invalid(key, "n must be at most %d, got %d.", maxN, q.n)
		}
	case "temperature":
		if f, bad := strconv.ParseFloat(string(v), 64); bad != nil || f < 0 {
			err = invalid(key, "temperature must be non-negative, got %s. (parameter=temperature, value=%s)", v, v)
		}
	case "stop":
		q.stops, err = stopStrings(v)
	case "continue_final_message":
		q.goesOn = string(v) == "true"
	case "ignore_eos":
		q.ignoreEnd = string(v) == "true"
	case "cache_salt":
		q.salt, err = text(key, v)
	case "priority":
		if n, bad := strconv.Atoi(string(v)); bad != nil {
			err = invalid(key, "priority must be an integer, got %s.", v)
		} else {
			q.rank = n
		}
	case "routed_dp_rank", "data_parallel_rank":
		q.dataRank, err = number(key, v, 0)
	case "request_id", "rid":
		if q.id == "" {
			q.id, err = text(key, v)
		}
	case "reasoning_effort":
		q.effort, err = text(key, v)
	case "seed":
		if n, bad := strconv.ParseInt(string(v), 10, 64); bad == nil {
			q.seed = uint64(n)
		}
	default:
		return q.structured(key, v)
	}
	return err
}

// structured reads the members that are decoded because they are rare.
func (q *request) structured(key string, v []byte) (err error) {
	switch key {
	case "tools":
		err = json.Unmarshal(v, &q.tools)
	case "tool_choice":
		q.toolChoice, q.forced = v, v[0] == '{'
	case "response_format":
		err = json.Unmarshal(v, &q.format)
	case structuredOutputs:
		err = q.format.structured(v)
	case "kv_transfer_params":
		err = json.Unmarshal(v, &q.transfer)
	case "disaggregated_params":
		err = json.Unmarshal(v, &q.disagg)
	case "bootstrap_host":
		err = json.Unmarshal(v, &q.bootstrap.host)
	case "bootstrap_port":
		err = json.Unmarshal(v, &q.bootstrap.port)
	case "bootstrap_room":
		err = json.Unmarshal(v, &q.bootstrap.room)
	case "prompt_token_ids":
		var ids []uint32
		if err = json.Unmarshal(v, &ids); err == nil && len(ids) > 0 {
			q.prompts = [][]uint32{ids}
		}
	case "messages":
		q.messages = v
	case "prompt":
		if !q.chat {
			q.prompts, err = prompts(v)
		}
	}
	if err != nil {
		return invalid(key, "%s is invalid: %v", key, err)
	}
	return nil
}

func text(key string, v []byte) (string, error) {
	b, ok := scan.Text(nil, v)
	if !ok {
		return "", invalid(key, "%s must be a string.", key)
	}
	return string(b), nil
}

func number(key string, v []byte, least int) (int, error) {
	n, err := strconv.Atoi(string(v))
	if err != nil || n < least {
		return 0, invalid(key, "%s must be at least %d, got %s. (parameter=%s, value=%s)", key, least, v, key, v)
	}
	return n, nil
}

func stopStrings(v []byte) ([]string, error) {
	var one string
	if json.Unmarshal(v, &one) == nil {
		return []string{one}, nil
	}
	var all []string
	if err := json.Unmarshal(v, &all); err != nil || len(all) > maxStops {
		return nil, invalid("stop", "stop must be a string or at most %d strings.", maxStops)
	}
	return all, nil
}

// prompts reads a text, several texts, a list of token ids, or several such lists.
func prompts(v []byte) ([][]uint32, error) {
	if s, ok := scan.Text(nil, v); ok {
		return [][]uint32{tok.Append([]uint32{tok.Begin}, s)}, nil
	}
	var ids []uint32
	if json.Unmarshal(v, &ids) == nil && len(ids) > 0 {
		return [][]uint32{ids}, nil
	}
	var all [][]uint32
	e := scan.Array(v)
	for e.Next() && len(all) <= maxPrompts {
		one, err := prompts(e.Value)
		if err != nil || len(one) != 1 {
			return nil, invalid("prompt", "prompt must be text, texts, token ids, or lists of token ids.")
		}
		all = append(all, one[0])
	}
	if e.Err() != nil || len(all) == 0 || len(all) > maxPrompts {
		return nil, invalid("prompt", "prompt must be text or token ids, at most %d of them.", maxPrompts)
	}
	return all, nil
}

// lastMessages gives the last user message's content, raw, and the last message's role.
func lastMessages(v []byte) (question, role string) {
	e := scan.Array(v)
	for e.Next() {
		var r, c []byte
		m := scan.Object(e.Value)
		for m.Next() {
			switch string(m.Key) {
			case "role":
				r = m.Value
			case "content":
				c = m.Value
			}
		}
		if role = strings.Trim(string(r), `"`); role == "user" {
			question = string(c)
		}
	}
	return question, role
}

// fit checks a request against the model and settles how many tokens may be generated.
func (e *Engine) fit(q *request) error {
	if q.model != "" && q.model != e.cfg.Model && q.model != e.cfg.Model+thinkSuffix && !e.cfg.AnyModel && !e.withAdapter(q) {
		return fault.New(fault.NotFound, "The model `%s` does not exist. Valid aliases: %s.", q.model, e.cfg.Model).WithParam("model")
	}
	if q.model == "" {
		q.model = e.cfg.Model
	}
	q.think = strings.HasSuffix(q.model, thinkSuffix) && q.effort == "" || q.effort != "" && q.effort != "none"
	longest := 0
	for _, p := range q.prompts {
		longest = max(longest, len(p))
	}
	if err := e.voice.overflow(q, longest, e.context); err != nil {
		return err
	}
	if q.maxTokens == 0 {
		q.maxTokens = e.context - longest
	}
	return nil
}
