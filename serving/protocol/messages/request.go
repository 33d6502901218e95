package messages

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// Limits of requests.
const (
	maxModelBytes = 256
	maxMessages   = 100_000 // as Anthropic's
	maxBlocks     = 4 << 10 // of one message
	maxTools      = 1024
	maxToolName   = 128 // bytes
)

// Request is a checked Messages request.
type Request struct {
	Chat    *protocol.ChatRequest
	Prefill string // the member that holds the beginning of the answer, which the engine must continue; "" = none
	Tokens  int64  // of the prompt, estimated by its bytes

	view   view
	places []place
	tools  []int // of each of the chat body's tools, which one of the request's it is
}

// spot is a place in the request: a message, a block of one, or a block of a result in one. It is put into words only when something is wrong there.
type spot struct{ message, block, inner int }

// Places that are no message's or no block's.
const (
	inSystem = -1
	noBlock  = -1
)

// String names the member.
func (s spot) String() string {
	if s.message == inSystem {
		return "system"
	}
	at := field.At("messages", s.message)
	if s.block != noBlock {
		at += "." + field.At("content", s.block)
	}
	if s.inner != noBlock {
		at += "." + field.At("content", s.inner)
	}
	return at
}

// place is where a message of the chat body comes from.
type place struct {
	at    spot
	parts []spot // of its content, where that is an array
}

// Options of decoding.
type Options struct {
	Seal  protocol.ReasoningSeal
	Count bool // the request is to be counted, not answered: max_tokens is not needed
}

// reader is one body being read.
type reader struct {
	Options
	req     *Request
	members map[string][]byte // raw; null is absent
	history history
	out     []byte
	ignored field.Ignored
	extras  []byte // members that are an engine's own, or nobody's, each after a comma

	toolNames []string
	thinks    bool // thinking is asked for
}

// Decode checks a body. What is wrong with it is a fault of kind Invalid that names the member. The request keeps nothing of body.
func Decode(body []byte, o Options) (*Request, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, fault.New(fault.Invalid, "The request body is not valid JSON.").WithCode("invalid_json")
	}
	r := reader{Options: o, req: &Request{}, members: make(map[string][]byte, 16), out: make([]byte, 0, len(body)+256)}
	r.req.view.seal = o.Seal
	if err := object(body, r.member); err != nil {
		if f := fault.Of(err); f.Param == "" {
			f.Message = "The request body must be a JSON object of at most 64 members."
		}
		return nil, err
	}
	if err := r.build(); err != nil {
		return nil, err
	}
	chat, err := protocol.DecodeBuilt(r.out, protocol.Built{Messages: len(r.req.places), TextBytes: r.history.bytes, RemoteImages: r.history.remote})
	if err != nil {
		return nil, r.req.translate(err)
	}
	r.req.Chat = chat
	chat.CacheKey = r.session()
	for _, name := range chat.Ignored {
		r.ignored.Name(name)
	}
	chat.Ignored = r.ignored
	r.req.Tokens = protocol.EstimateTokens(r.history.bytes + r.history.more)
	return r.req, nil
}

// member keeps what we know, names what we ignore and refuses what would change the answer's meaning.
func (r *reader) member(name, v []byte) error {
	key := string(name)
	switch key {
	case "model", "messages", "max_tokens", "system", "stream", "stop_sequences", "temperature", "top_p", "top_k", "tools", "tool_choice",
		"thinking", "output_config", "output_format", "metadata", "service_tier", "context_management", "session_id":
		r.members[key] = v
		return nil
	case "mcp_servers":
		if string(v) == "[]" {
			return nil
		}
		return field.Unsupported(key, "MCP servers are not called from here: let your program offer their tools as tools of its own.")
	case "container":
		return field.Unsupported(key, "There are no containers here: run code in a tool of your own.")
	case "thread":
		return field.Unsupported(key, "There are no threads here: send the whole conversation in messages.")
	}
	if engine.Steers(name) {
		return field.Unsupported(field.Clip(name), "It steers engines: only Millrace sets it.")
	}
	if noEffect[key] || protocol.OfChat(key) {
		r.ignored.Add("", name)
		return nil
	}
	r.extras = append(append(scan.Quote(append(r.extras, ','), key), ':'), v...) // the model's list decides
	return nil
}

// noEffect are members of Anthropic's API that no engine has, and what the end of the conversation decides.
var noEffect = map[string]bool{"cache_control": true, "speed": true, "inference_geo": true, "fallbacks": true, "diagnostics": true, "betas": true,
	"anthropic_version": true, "anthropic_beta": true, "continue_final_message": true, "add_generation_prompt": true}

// build writes the chat body.
func (r *reader) build() error {
	for _, step := range []func() error{r.model, r.limit, r.thinking, r.conversation, r.toolList, r.toolChoice, r.outputConfig, r.sampling, r.others} {
		if err := step(); err != nil {
			return err
		}
	}
	r.out = append(append(r.out, r.extras...), '}')
	return nil
}

// put appends a member with a raw value.
func (r *reader) put(name string, value []byte) {
	r.out = append(append(append(append(r.out, `,"`...), name...), `":`...), value...)
}

func (r *reader) model() error {
	name, err := needed("model", r.members["model"])
	if err != nil {
		return err
	}
	if len(name) > maxModelBytes {
		return field.Invalid("model", "It is too long.")
	}
	r.out = append(append(append(r.out, `{"model":"`...), name...), '"')
	return nil
}

func (r *reader) limit() error {
	v := r.members["max_tokens"]
	if v == nil {
		if r.Count {
			return nil
		}
		return required("max_tokens")
	}
	_, err := integer("max_tokens", v, 1, usage.MaxTokens)
	r.put("max_completion_tokens", v)
	return err
}

// conversation writes the messages.
func (r *reader) conversation() error {
	r.history.out = append(r.out, `,"messages":[`...)
	if v := r.members["system"]; v != nil {
		if err := r.system(systemBlocks, v, spot{inSystem, noBlock, noBlock}); err != nil {
			return field.Within("system", err)
		}
	}
	v := r.members["messages"]
	if v == nil {
		return required("messages")
	}
	if err := list(v, maxMessages, r.message); err != nil {
		return field.Within("messages", err)
	}
	r.flush()
	if len(r.req.places) == 0 {
		return field.Invalid("messages", "At least one message is required.")
	}
	r.out = append(r.history.out, ']')
	return r.prefill()
}

// Answer makes the answer's writer: gate.Dialect's.
func (q *Request) Answer(streamed bool, p protocol.AnswerParams) protocol.Answer {
	if streamed {
		return newStream(p, &q.view)
	}
	return newWhole(p, &q.view)
}

// chatNames are the members of the chat body that come from members of another name.
var chatNames = map[string]string{"max_completion_tokens": "max_tokens", "stop": "stop_sequences", "response_format": "output_config.format",
	"reasoning_effort": "output_config.effort", "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
	"continue_final_message": "messages", "add_generation_prompt": "messages"}

// Member gives the member of the Messages request that a member of the chat body comes from.
func (q *Request) Member(chat string) string {
	head, rest, _ := strings.Cut(chat, ".")
	name, index := indexed(head)
	switch {
	case name == "messages" && index >= 0 && index < len(q.places):
		p := &q.places[index]
		part, _, _ := strings.Cut(rest, ".")
		if _, i := indexed(part); i >= 0 && i < len(p.parts) {
			at := p.parts[i].String()
			if strings.HasSuffix(rest, ".image_url.url") {
				at += ".source.url"
			}
			return at
		}
		return p.at.String()
	case name == "tools" && index >= 0 && index < len(q.tools):
		return field.At("tools", q.tools[index])
	case name == "messages", name == "tools":
		return name
	}
	if own, ok := chatNames[name]; ok {
		return own
	}
	return name
}

// indexed cuts "name[3]" in two; -1 = no index.
func indexed(s string) (name string, index int) {
	name, digits, found := strings.Cut(s, "[")
	if !found {
		return s, -1
	}
	n, err := strconv.Atoi(strings.TrimSuffix(digits, "]"))
	if err != nil {
		return s, -1
	}
	return name, n
}

// translate makes a fault about the chat body one about this request.
func (q *Request) translate(err error) error {
	f := fault.Of(err)
	own := *f
	own.Param = q.Member(f.Param)
	if own.Param != f.Param { // the words name the chat body's members
		own.Message = strings.ReplaceAll(own.Message, f.Param, own.Param)
	}
	return &own
}

// Translate makes what later steps say of the chat body something about this request.
func (q *Request) Translate(err error) error {
	if f := fault.Of(err); f != nil && f.Param != "" {
		return q.translate(err)
	}
	return err
}

// unescaped is a JSON string's text.
func unescaped(inside []byte) string { return string(scan.Unquote(nil, inside)) }
