package sim

import (
	"fmt"
	"net/http"
	"strconv"

	"millrace/internal/fault"
	"millrace/serving/engine/kvevent"
)

// voice is how an engine speaks on the wire: what differs between engines that compute the same. It has no state. What its
// methods append are parts of a chunk's choice, or of an answer.
type voice interface {
	traits() traits
	// opening is the first delta of a choice.
	opening() string
	// text appends a delta with a token's text, the inside of a JSON string; nothing when the engine does not show this part.
	text(b []byte, p part, json string) []byte
	// call appends a delta with a piece of a tool call.
	call(b []byte, c callPiece) []byte
	// going ends a choice that goes on, after its delta or text.
	going() string
	// end ends a choice, after its delta or text; stop is the stop string that was found.
	end(b []byte, reason, stop string) []byte
	// usage appends the usage object.
	usage(b []byte, n counted) []byte
	// message is a whole answer's.
	message(text, thought string, calls []wholeCall) map[string]any
	// stopMember names what tells the stop string in a whole choice; "" = nothing does.
	stopMember() string
	// takes checks a member of a request for what this engine refuses. false = the request goes on without it.
	takes(q *request, key string, value []byte) (bool, error)
	// overflow is nil when the prompt fits; it may lower q.maxTokens.
	overflow(q *request, prompt, context int) error
	// refusal is the body of an answer that is an error.
	refusal(status int, f *fault.Fault) any
	// routes adds what not every engine has.
	routes(e *Engine, m *http.ServeMux)
	// metric is a metric's name, "" when there is none of it.
	metric(name string) string
}

type traits struct {
	apart          bool          // the finish comes in a chunk of its own, without usage
	emptyDelta     string        // its delta
	continuous     bool          // knows continuous_usage_stats
	nullUsage      bool          // chunks without usage say so
	lineEnd        string        // between a choice's first event and the end of its line
	metricsPath    string        // "" = none
	polled         bool          // KV events are polled
	shutsForResize bool          // answers nothing while it is being resized
	shape          kvevent.Shape // of KV events that are published
	stopsByToken   string        // the natural end, as stopMember tells it
}

// callPiece is what one token adds to a tool call.
type callPiece struct {
	choice, index int
	id, name      string
	first         bool   // the name is complete
	arguments     string // inside of a JSON string
	forced        bool   // by name
}

// counted is what a usage object counts.
type counted struct {
	prompt, cached, generated, reasoning int64
	thinks                               bool
}

func (n counted) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), n.prompt, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), n.prompt+n.generated, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), n.generated, 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), n.cached, 10)
	return append(b, '}')
}

// appendReasoning appends the details of what was generated.
func (n counted) appendReasoning(b []byte) []byte {
	b = strconv.AppendInt(append(b, `,"completion_tokens_details":{"reasoning_tokens":`...), n.reasoning, 10)
	return append(b, '}')
}

// voices are the personalities by the flag's names.
var voices = map[string]voice{"vllm": vllmVoice{}, "sglang": sglangVoice{}, "trtllm": trtllmVoice{}, "openai": openaiVoice{}, "deepinfer": deepinferVoice{}}

func voiceOf(personality string) (voice, error) {
	if personality == "" {
		personality = "vllm"
	}
	v, ok := voices[personality]
	if !ok {
		return nil, fmt.Errorf("sim: there is no personality %q", personality)
	}
	return v, nil
}
