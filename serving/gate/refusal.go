package gate

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine/scan"
	"millrace/serving/internal/upstream"
	"millrace/serving/protocol"
)

// failure is an attempt that came to nothing: what the client is told, and what to do about the unit.
type failure struct {
	fault *fault.Fault
	note  string // for the usage event
	retry bool   // another unit may do better
	same  bool   // this one too: only a stale connection was to blame
	blame bool   // the unit is at fault
	left  bool   // the client has gone, of its own will

	engines []ids.ID // that failed: the request does not go there again
}

// rejected is a unit's answer that is no stream.
type rejected struct {
	status     int
	retryAfter time.Duration
	text       string // the start of its body, for the log
	param      string // the member it names, when the client sent it
	context    bool   // the prompt or the answer is too long for the model
	window     int64  // the model's context, tokens
	path       bool   // the unit has no such path, which not every engine has
}

func (r *rejected) Error() string {
	return fmt.Sprintf("gate: the unit answered %d: %s", r.status, r.text)
}

func isEventStream(contentType string) bool {
	return strings.HasPrefix(contentType, "text/event-stream")
}

// maxRefusal bounds what is read of a refusal, in bytes; maxRefusalText what is kept for the log.
const (
	maxRefusal     = 64 << 10
	maxRefusalText = 512
)

// refused reads a unit's refusal. Its words are for the log: they may tell of things inside.
func (t *Ticket) refused(x *upstream.Exchange) error {
	r := &rejected{status: x.Status, window: t.model.Context}
	r.path = t.req.Chat.Task != protocol.TaskChat && (x.Status == 404 || x.Status == 405 || x.Status == 501)
	if s, err := strconv.Atoi(x.RetryAfter); err == nil && s > 0 && s < 3600 {
		r.retryAfter = time.Duration(s) * time.Second
	}
	x.Deadline(t.gate.Clock.Now().Add(t.gate.Times.Connect), 0)
	body, _ := io.ReadAll(io.LimitReader(x, maxRefusal)) // what came is enough
	r.text = strings.ToValidUTF8(string(body[:min(len(body), maxRefusalText)]), "")
	r.read(body, t.req.Chat)
	return r
}

// read finds what the refusal is about: {"error": {…}} as OpenAI has it, or the members themselves.
func (r *rejected) read(body []byte, chat *protocol.ChatRequest) {
	var param string
	var visit func(object []byte)
	visit = func(object []byte) {
		m := scan.Object(object)
		for m.Next() {
			text, _ := scan.Text(nil, m.Value)
			switch string(m.Key) {
			case "error":
				if m.Value[0] == '{' {
					visit(m.Value)
				}
			case "param":
				param = string(text)
			case "message", "detail":
				r.context = r.context || contextWords.Match(text)
			case "code", "type":
				r.context = r.context || contextCodes[string(text)]
			}
		}
	}
	visit(body)
	if param != "" && chat.Has(param) {
		r.param = param
	}
}

// classify says what an attempt's error means. Deterministic faults are the client's and never tried again.
func (t *Ticket) classify(err error) failure {
	var rej *rejected
	var frame *protocol.EngineError
	var known *fault.Fault
	var connect *upstream.ConnectError
	switch {
	case errors.As(err, &rej):
		return rej.failure(err)
	case errors.As(err, &frame) && frame.Status != 0:
		rej = &rejected{status: frame.Status, text: frame.Text, window: t.model.Context}
		if frame.Status == 400 {
			rej.read([]byte(frame.Text), t.req.Chat)
		}
		return rej.failure(rej)
	case errors.Is(err, upstream.ErrStale):
		return failure{fault: engineFault(err), note: "stale connection", retry: true, same: true}
	case errors.As(err, &connect):
		return failure{fault: engineFault(err), note: "unreachable", retry: true, blame: true}
	case upstream.IsTimeout(err):
		return failure{fault: fault.New(fault.Timeout, "The model did not begin to answer in time. Try again.").WithCause(err),
			note: "timeout", blame: true}
	case errors.Is(err, protocol.ErrAnswerTooLarge):
		return failure{fault: fault.New(fault.TooLarge, "The answer became too large to be given whole. Ask for it as a stream.").WithCause(err), note: "answer too large"}
	case errors.As(err, &known):
		return failure{fault: known, note: known.Kind.String()}
	}
	return failure{fault: engineFault(err), note: note(err), retry: true, blame: true}
}

func engineFault(cause error) *fault.Fault {
	return fault.New(fault.Upstream, "The model's engine failed. Try again.").WithCause(cause)
}

// note is a short reason that tells nothing of addresses.
func note(err error) string {
	switch {
	case errors.Is(err, protocol.ErrMalformed):
		return "malformed stream"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errNoAnswer):
		return "broken stream"
	}
	return "engine error"
}

// busyRetry is when to try again when an engine is overloaded and does not say.
const busyRetry = 2 * time.Second

func (r *rejected) failure(cause error) failure {
	f := failure{note: "status " + strconv.Itoa(r.status)}
	switch {
	case r.context && r.status < 500:
		f.fault = fault.New(fault.Invalid, "The prompt and the answer asked for do not fit this model's context%s. Shorten the messages or lower max_tokens.",
			ofTokens(r.window)).WithCode("context_length_exceeded").WithParam("messages")
	case r.path:
		f.fault = fault.New(fault.Invalid, "This model does not do this: its engine has no such API. Most models take messages at /v1/chat/completions.").WithParam("model").WithCode("unsupported_model")
		f.retry = true
	case r.status == 400, r.status == 422:
		f.fault = fault.New(fault.Invalid, "The model refused this request%s.", checkParam(r.param)).WithParam(r.param)
	case r.status == 413:
		f.fault = fault.New(fault.TooLarge, "The request is too large for this model.")
	case r.status == 429, r.status == 503, r.status == 529:
		wait := r.retryAfter
		if wait == 0 {
			wait = busyRetry
		}
		f.fault = fault.New(fault.Unavailable, "The model is overloaded. Try again shortly.").WithRetryAfter(wait)
		f.retry = true
	default: // the engine's fault, or ours towards it: a key it does not take, a model it does not have
		f.fault = engineFault(nil)
		f.retry, f.blame = true, true
	}
	f.fault.Cause = cause
	return f
}

func ofTokens(n int64) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" of %d tokens", n)
}

func checkParam(p string) string {
	if p == "" {
		return ""
	}
	return ": check " + p
}
