package engine

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// chatRules is what one family's bodies need beyond what all share.
type chatRules struct {
	forced    string          // members every body gets, without surrounding commas
	salt      bool            // knows cache_salt
	requestID string          // the member that names the request; "" = none
	rank      rankStyle       // the value of priority; nil = knows none
	template  bool            // knows chat_template_kwargs: open models are told there not to think
	capName   string          // the name of the token cap; "" = the one the client used, else max_tokens
	drop      map[string]bool // the family's own fields that a client must never set
	only      map[string]bool // all that the engine takes of a client; nil = it ignores what it does not know
	chatOnly  bool            // a prompt of text would have no salt
	constrain constraintStyle // how it takes constraints on the output
	rewrite   map[string]func(value []byte) []byte
}

// A rankStyle appends the priority that stands for a rank. Lower ranks go first.
type rankStyle func(dst []byte, rank int) []byte

// lowFirst is for engines whose queues take lower numbers first, by themselves or as Command starts them.
func lowFirst(dst []byte, rank int) []byte { return strconv.AppendInt(dst, int64(rank), 10) }

// setAgain are the fields that a body gets from ChatParams.
var setAgain = set("stream", "stream_options", "model", "max_tokens", "max_completion_tokens")

// steering are the fields by which Millrace steers engines, of every engine that we know: a client that sets one could
// read another tenant's cache, point an engine at a foreign peer, jump the queue or run code. They go to no engine.
var steering = set(
	"cache_salt", "priority", "request_id", "rid", "extra_key",
	"kv_transfer_params", "ec_transfer_params", "disaggregated_params", "vllm_xargs", "nvext",
	"bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key",
	"data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank", "session_params", "session_id",
	"custom_logit_processor", "custom_params", "input_embeds", "return_hidden_states", "lora_path",
	"return_token_ids", "prompt_logprobs", "echo", "timings_per_token",
	"chat_template", "media_io_kwargs", "mm_processor_kwargs", "logits_processors", "prompt_token_ids", "continuous_usage_stats",
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// outgoing is a body in the making.
type outgoing struct {
	*chatRules
	dst           []byte
	limit, legacy []byte      // raw values of max_completion_tokens and max_tokens
	format        []byte      // the member response_format
	plainFormat   bool        // it asks for text, as everything does
	unthinking    bool        // by reasoning_effort
	told          bool        // something is said to the template
	constraint    *constraint // nil = none
}

// prepare is PrepareChat for every family: one walk over the top level, kept members copied as they are, ours appended.
func (r *chatRules) prepare(dst, body []byte, p ChatParams) ([]byte, error) {
	o := outgoing{chatRules: r, dst: scan.Quote(append(dst, `{"model":`...), p.Model)}
	m := scan.Object(body)
	for m.Next() {
		if r.chatOnly && p.Salt != "" && string(m.Key) == "prompt" {
			return nil, NoText()
		}
		if err := o.member(m.Key, m.Value, body[m.Start:m.End]); err != nil {
			return nil, err
		}
	}
	if m.Err() != nil || scan.Space(body, m.Offset()) != len(body) {
		return nil, fault.New(fault.Invalid, "The request body must be a JSON object.")
	}
	if p.Plain {
		return append(o.dst, '}'), nil
	}
	return o.finish(p)
}

// NoText refuses a prompt of text: the engine could not keep it apart from what others sent.
func NoText() error {
	return fault.New(fault.Invalid, "This model takes messages only: send them to /v1/chat/completions.").WithParam("model").WithCode("unsupported_model")
}

// member takes in one member of the client's; whole is its name and value.
func (o *outgoing) member(key, value, whole []byte) error {
	switch string(key) {
	case "max_completion_tokens":
		o.limit = value
		return nil
	case "max_tokens":
		o.legacy = value
		return nil
	case "response_format":
		o.format, o.plainFormat = whole, absent(value) || string(member(value, "type")) == `"text"`
		return nil
	case "reasoning_effort":
		o.unthinking = string(value) == `"none"`
	case "chat_template_kwargs":
		o.told = !absent(value)
	}
	if constrains(key) {
		if o.constraint == nil {
			o.constraint = new(constraint)
		}
		return o.constraint.add(string(key), value, whole)
	}
	if o.refuses(key) {
		return nil
	}
	o.dst = append(o.dst, ',')
	if f := o.rewrite[string(key)]; f != nil {
		o.dst = append(scan.Quote(o.dst, string(key)), ':')
		whole = f(value)
	}
	o.dst = append(o.dst, whole...)
	return nil
}

// finish appends what is Millrace's to decide.
func (o *outgoing) finish(p ChatParams) ([]byte, error) {
	dst, err := o.shape(o.dst)
	if err == nil {
		dst, err = o.tokenCap(dst, o.limit, o.legacy, p.MaxTokens)
	}
	if err != nil {
		return nil, err
	}
	if o.template && o.unthinking && !o.told {
		dst = append(dst, noThinking...)
	}
	if o.salt && p.Salt != "" {
		dst = scan.Quote(append(dst, `,"cache_salt":`...), p.Salt)
	}
	if o.requestID != "" && p.RequestID != "" {
		dst = append(append(append(dst, `,"`...), o.requestID...), `":`...)
		dst = scan.Quote(dst, p.RequestID)
	}
	if o.rank != nil && p.Rank != 0 {
		dst = o.rank(append(dst, `,"priority":`...), p.Rank)
	}
	dst = append(append(dst, ','), o.forced...)
	return append(dst, '}'), nil
}

// shape appends what the output is held to: response_format as it was sent, or a constraint in the engine's words.
func (o *outgoing) shape(dst []byte) ([]byte, error) {
	switch c := o.constraint; {
	case c != nil && c.kind != unconstrained && (o.format == nil || o.plainFormat):
		return o.constrain(dst, c)
	case c != nil && c.kind != unconstrained:
		return nil, c.set(constraint{name: "response_format"})
	case o.format != nil:
		return append(append(dst, ','), o.format...), nil
	}
	return dst, nil
}

// noThinking says by the names that templates of open models have for it (Qwen's and GLM's, DeepSeek's) what OpenAI's own
// effort "none" says. Templates pass over what they do not know.
const noThinking = `,"chat_template_kwargs":{"enable_thinking":false,"thinking":false}`

// Steers reports whether a member of a chat body steers engines and so is no client's to set, however its name is cased.
func Steers(key []byte) bool { return has(steering, key) }

// refuses tells whether a client's member is left out.
func (r *chatRules) refuses(key []byte) bool {
	return has(setAgain, key) || has(steering, key) || has(r.drop, key) || r.only != nil && !r.only[string(key)]
}

// drops reports whether a member that clients may send is left out.
func (r *chatRules) drops(name string) bool {
	return !constrains([]byte(name)) && r.refuses([]byte(name))
}

// has looks a member's name up without regard to case. Servers written in Go match names so, the Kelvin sign and the long
// s included, so names are compared as those servers do.
func has(names map[string]bool, key []byte) bool {
	for _, c := range key {
		if 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf {
			return names[strings.ToLower(strings.ToUpper(string(key)))]
		}
	}
	return names[string(key)]
}

// tokenCap appends the cap on generated tokens: the client's, max_completion_tokens before max_tokens, lowered to ours.
func (r *chatRules) tokenCap(dst, limit, legacy []byte, ours int64) ([]byte, error) {
	name, raw := "max_completion_tokens", limit
	if absent(limit) {
		name, raw = "max_tokens", legacy
	}
	tokens := ours
	if !absent(raw) {
		asked, ok := wholeNumber(raw)
		if !ok || asked < 1 {
			return nil, fault.New(fault.Invalid, "%s must be a whole number of at least 1.", name).WithParam(name)
		}
		if tokens <= 0 || asked < tokens {
			tokens = asked
		}
	}
	if tokens <= 0 {
		return dst, nil
	}
	if r.capName != "" {
		name = r.capName
	}
	dst = append(dst, `,"`...)
	dst = append(dst, name...)
	dst = append(dst, `":`...)
	return strconv.AppendInt(dst, tokens, 10), nil
}

func absent(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// wholeNumber reads a JSON number that is an integer, 1e3 and 16.0 included.
func wholeNumber(raw []byte) (int64, bool) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
