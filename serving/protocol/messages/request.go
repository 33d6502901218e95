package messages

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
)

// Limits of requests.
const (
	maxModelBytes = 256
	maxMessages   = 100_000 // as Anthropic's
	maxBlocks     = 4 << 10 // of one message
	maxTools      = 1024
	maxToolName   = 128 // bytes
	maxIgnored    = 32  // names of what has no effect
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

// spot is a place in the request: a message, or a block of one. It is put into words only when something is wrong there.
type spot struct{ message, block int }

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
	at := "messages[" + strconv.Itoa(s.message) + "]"
	if s.block != noBlock {
		at += ".content[" + strconv.Itoa(s.block) + "]"
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
	ignored []string

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
	chat, err := protocol.DecodeBuilt(r.out)
	if err != nil {
		return nil, r.req.translate(err)
	}
	r.req.Chat = chat
	chat.CacheKey = r.session()
	chat.Ignored = append(r.ignored, chat.Ignored...)
	r.req.Tokens = r.history.bytes/bytesPerToken + 1
	return r.req, nil
}

// bytesPerToken turns bytes into a low estimate of tokens, as the gate does.
const bytesPerToken = 4

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
		return unsupported(key, "MCP servers are not called from here: let your program offer their tools as tools of its own.")
	case "container":
		return unsupported(key, "There are no containers here: run code in a tool of your own.")
	case "thread":
		return unsupported(key, "There are no threads here: send the whole conversation in messages.")
	}
	if engine.Steers(name) {
		return unsupported(clip(name), "It steers engines: only Millrace sets it.")
	}
	r.ignore(clip(name))
	return nil
}

// ignore names something that has no effect, once.
func (r *reader) ignore(name string) {
	if len(r.ignored) < maxIgnored && !slices.Contains(r.ignored, name) {
		r.ignored = append(r.ignored, name)
	}
}

// build writes the chat body.
func (r *reader) build() error {
	for _, step := range []func() error{r.model, r.limit, r.thinking, r.conversation, r.toolList, r.toolChoice, r.outputConfig, r.sampling, r.others} {
		if err := step(); err != nil {
			return err
		}
	}
	r.out = append(r.out, '}')
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
		return invalid("model", "It is too long.")
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
	if v := r.members["system"]; v != nil {
		if err := r.system(v, spot{inSystem, noBlock}); err != nil {
			return within("system", err)
		}
	}
	v := r.members["messages"]
	if v == nil {
		return required("messages")
	}
	if err := list(v, maxMessages, r.message); err != nil {
		return within("messages", err)
	}
	r.flush()
	if len(r.history.out) == 0 {
		return invalid("messages", "At least one message is required.")
	}
	r.put("messages", append(append([]byte{'['}, r.history.out...), ']'))
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
			return p.parts[i].String()
		}
		return p.at.String()
	case name == "tools" && index >= 0 && index < len(q.tools):
		return "tools[" + strconv.Itoa(q.tools[index]) + "]"
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
