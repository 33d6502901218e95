package responses

import (
	"strconv"
	"time"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// Answers makes the answers of one request: each shows what the request asked for.
type Answers struct {
	Request *Request
	ID      string // of the response; "" = the request's
	Now     func() time.Time
	Seal    *protocol.ReasoningSeal    // of reasoning that the client asked to get sealed; nil = nothing is
	Keep    func(response []byte) bool // is given the response object that ended before the client is, and says whether it was stored; nil = nothing is kept
	echo    []byte
}

// stores reports whether the response is to be found later.
func (a *Answers) stores() bool { return a.Keep != nil && a.Request.Store }

// New makes one attempt's answer.
func (a *Answers) New(stream bool, p protocol.AnswerParams) protocol.Answer {
	if a.echo == nil {
		a.echo = a.appendEcho(nil)
	}
	if a.ID != "" {
		p.ID = a.ID
	}
	if stream {
		return newStream(a, p)
	}
	return newWhole(a, p)
}

// The states of a response.
const (
	Queued     = "queued"
	InProgress = "in_progress"
	Completed  = "completed"
	Incomplete = "incomplete"
	Failed     = "failed"
	Cancelled  = "cancelled"
)

// state is what changes of a response object while it is made.
type state struct {
	status string
	reason string // of incomplete
	fault  []byte // {"code", "message"}; nil = none
	output []byte // elements
	usage  *usage.Vector
	kept   bool
}

// outcome is how an answer of which the engine made an end came out.
func outcome(finish string) (s state) {
	switch finish {
	case "length":
		return state{status: Incomplete, reason: "max_output_tokens"}
	case "content_filter":
		return state{status: Incomplete, reason: "content_filter"}
	}
	return state{status: Completed}
}

// appendObject appends the response object.
func (a *Answers) appendObject(dst []byte, p *protocol.AnswerParams, s *state) []byte {
	dst = append(append(append(dst, `{"id":"`...), p.ID...), `","object":"response","created_at":`...)
	dst = append(strconv.AppendInt(dst, p.Created, 10), `,"status":"`...)
	dst = append(append(dst, s.status...), `","completed_at":`...)
	if s.status == Completed {
		dst = strconv.AppendInt(dst, max(a.Now().Unix(), p.Created), 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendOr(append(dst, `,"error":`...), s.fault, "null")
	if s.reason != "" {
		dst = append(append(append(dst, `,"incomplete_details":{"reason":"`...), s.reason...), `"}`...)
	} else {
		dst = append(dst, `,"incomplete_details":null`...)
	}
	dst = scan.Quote(append(dst, `,"model":`...), p.Model)
	dst = append(append(append(dst, `,"output":[`...), s.output...), `],"usage":`...)
	dst = appendUsage(dst, s.usage)
	service := p.Service
	if service == "" {
		service = "default"
	}
	dst = append(append(append(dst, `,"service_tier":"`...), service...), `","store":`...)
	dst = strconv.AppendBool(dst, s.kept)
	return append(dst, a.echo...)
}

// appendUsage appends usage with every detail; null when it is not known.
func appendUsage(dst []byte, u *usage.Vector) []byte {
	if u == nil {
		return append(dst, "null"...)
	}
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), u.Prompt(), 10)
	dst = strconv.AppendInt(append(dst, `,"input_tokens_details":{"cached_tokens":`...), u[usage.Cached], 10)
	dst = strconv.AppendInt(append(dst, `},"output_tokens":`...), u.Generated(), 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens_details":{"reasoning_tokens":`...), u[usage.Reasoning], 10)
	dst = strconv.AppendInt(append(dst, `},"total_tokens":`...), u.Tokens(), 10)
	return append(dst, '}')
}

// appendEcho appends the members that repeat the request, with the values that held, and closes the object. Strict
// readers refuse null where OpenAI always has a value.
func (a *Answers) appendEcho(dst []byte) []byte {
	q := a.Request
	dst = strconv.AppendBool(append(dst, `,"background":`...), q.Background)
	if q.Conversation != "" {
		dst = append(scan.Quote(append(dst, `,"conversation":{"id":`...), q.Conversation), '}')
	}
	dst = append(dst, `,"previous_response_id":`...)
	if q.Previous == "" {
		dst = append(dst, "null"...)
	} else {
		dst = scan.Quote(dst, q.Previous)
	}
	for _, m := range []struct {
		name   string
		v      []byte
		absent string
	}{
		{"instructions", q.instructions, "null"}, {"max_output_tokens", q.maxOutput, "null"}, {"max_tool_calls", q.maxToolCalls, "null"},
		{"parallel_tool_calls", q.parallel, "true"}, {"temperature", q.temperature, "1"}, {"top_p", q.topP, "1"},
		{"presence_penalty", q.presence, "0"}, {"frequency_penalty", q.frequency, "0"}, {"top_logprobs", q.topLogprobs, "0"},
		{"truncation", q.truncation, `"disabled"`}, {"prompt_cache_key", q.cacheKey, "null"}, {"safety_identifier", q.safety, "null"},
		{"user", q.user, "null"}, {"metadata", q.Metadata, "{}"}, {"tool_choice", q.tools.choice, `"auto"`},
	} {
		dst = append(append(append(dst, `,"`...), m.name...), `":`...)
		dst = appendOr(dst, m.v, m.absent)
	}
	dst = append(append(append(dst, `,"tools":[`...), q.tools.echo...), `],"reasoning":{"effort":`...)
	dst = appendOr(dst, q.effort, "null")
	dst = append(appendOr(append(dst, `,"summary":`...), q.summary, "null"), `},"text":{"format":`...)
	dst = q.appendFormatEcho(dst)
	return append(appendOr(append(dst, `,"verbosity":`...), q.verbosity, `"medium"`), `}}`...)
}

func (q *Request) appendFormatEcho(dst []byte) []byte {
	if q.format == nil {
		return append(dst, `{"type":"text"}`...)
	}
	f := q.format
	if field.Text(f.kind) != "json_schema" {
		return append(append(append(dst, `{"type":`...), f.kind...), '}')
	}
	dst = append(append(dst, `{"type":"json_schema","name":`...), f.name...)
	dst = appendOr(append(dst, `,"description":`...), f.description, "null")
	dst = append(append(dst, `,"schema":`...), f.schema...)
	return append(appendOr(append(dst, `,"strict":`...), f.strict, "false"), '}')
}
