package protocol

import (
	"millrace/internal/usage"
)

// Step says what one event of an engine's stream was.
type Step struct {
	Done   bool  // the stream's end mark
	Says   bool  // it carries a part of the answer: text, reasoning, a tool call
	Usage  bool  // it carries the engine's count: the driver can read it
	Tokens int64 // the engine's count of generated tokens so far; -1 unknown
	Choice int   // the choice that Tokens counts, -1 = all: some engines count each choice by itself
}

// Answer turns an engine's stream into one client's answer. Every method appends to dst. One goroutine.
type Answer interface {
	// Add takes in one event's data and appends what the client may see of it now. ErrMalformed and *EngineError mean
	// that the engine failed.
	Add(dst, data []byte) ([]byte, Step, error)
	// Complete reports whether every choice was finished by the engine.
	Complete() bool
	// Limit ends the answer early, as if a token limit had been reached.
	Limit()
	// Finish appends the rest of a complete answer, with usage where it was asked for; nil usage = unknown. What End
	// gives comes after it. A whole answer of which nothing may be told before its usage is safe appends nothing here.
	Finish(dst []byte, u *usage.Vector) []byte
	// Fail ends an answer of which a part was shown: frame is the dialect's error. What End gives comes after it.
	Fail(dst, frame []byte) []byte
	// End appends the last bytes. It is called once the usage log has acknowledged; not at all when the client has gone.
	End(dst []byte) []byte
	// KeepAlive appends what tells a client that its stream still runs, which is no part of the answer.
	KeepAlive(dst []byte) []byte
	// Release gives the answer's memory to later ones. It must not be used afterwards.
	Release()
}

// AnswerParams is what an answer shows of its request.
type AnswerParams struct {
	ID          string   // with the dialect's prefix
	Model       string   // the public name
	Created     int64    // unix seconds
	N           int      // choices
	CustomTools []string // whose calls are shown with an input instead of arguments
	Service     string   // the service tier to tell; "" = none
	Prompt      int64    // tokens of the prompt, counted or estimated
	Usage       bool     // streamed: the client asked for usage
	OneCall     bool     // calls after the first are not shown: the engine was asked for none
	Legacy      bool     // a call is shown as function_call
	Counter     string   // a chunk member, besides usage, in which the engine counts; "" = none
}

// appendService appends the service tier, if one is to be told.
func (p *AnswerParams) appendService(dst []byte) []byte {
	if p.Service == "" {
		return dst
	}
	return append(append(append(dst, `,"service_tier":"`...), p.Service...), '"')
}

// Comment is a keep-alive that every reader of event streams passes over.
const Comment = ": keep-alive\n\n"

// doneData is the data of the event that ends a stream.
const doneData = "[DONE]"

// finishes maps what engines say to OpenAI's finish reasons; others mean "stop".
var finishes = map[string]string{
	`"stop"`: `"stop"`, `"length"`: `"length"`, `"tool_calls"`: `"tool_calls"`, `"content_filter"`: `"content_filter"`,
	`"function_call"`: `"tool_calls"`, `"max_tokens"`: `"length"`,
}

// aborted are finish reasons by which engines say that they gave up.
var aborted = map[string]bool{`"abort"`: true, `"error"`: true, `"cancelled"`: true}

// finishReason gives a client's finish reason, or an error when the engine gave up.
func finishReason(raw []byte) (string, error) {
	if aborted[string(raw)] {
		return "", &EngineError{Text: "finish_reason " + string(raw)}
	}
	if f, ok := finishes[string(raw)]; ok {
		return f, nil
	}
	return `"stop"`, nil
}
