package dsml

import (
	"fmt"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// Limits of requests, beside those of the body they come in.
const (
	maxStops    = 16
	maxMessages = 16 << 10
	maxTools    = 1024
)

// conversation is a request as the template needs it.
type conversation struct {
	markup   *markup
	thinking bool
	effort   string // one of the models'; "" when they do not think
	tools    []tool
	forced   bool   // the answer is to be a tool call
	oneCall  bool   // no parallel calls
	format   string // what the system prompt says of the answer's format
	json     bool   // any JSON object is asked for
	stops    []string
	messages []message
	images   []string
	ignored  []string
}

type tool struct {
	name, schema string
}

type message struct {
	role      string
	content   []Segment
	reasoning string
	calls     []toolCall
	answers   string // of a tool message: the call's id
	prefix    bool   // the answer goes on from here
}

type toolCall struct{ id, name, arguments string }

// fields are the members of a body that the template reads; raw values, nil where there is none or null.
type fields struct {
	messages, tools, choice, parallel, thinking, effort, format, stop, logprobs []byte
}

func readFields(body []byte) (*fields, error) {
	var f fields
	into := map[string]*[]byte{
		"messages": &f.messages, "tools": &f.tools, "tool_choice": &f.choice, "parallel_tool_calls": &f.parallel,
		"thinking": &f.thinking, "reasoning_effort": &f.effort, "response_format": &f.format, "stop": &f.stop, "logprobs": &f.logprobs,
	}
	m := scan.Object(body)
	for m.Next() {
		if at := into[string(m.Key)]; at != nil && string(m.Value) != "null" {
			*at = m.Value
		}
	}
	if m.Err() != nil {
		return nil, fault.New(fault.Invalid, "The request body must be a JSON object.")
	}
	return &f, nil
}

func invalid(param, format string, args ...any) error {
	return fault.New(fault.Invalid, format, args...).WithParam(param)
}

// converse reads a Chat Completions body. What protocol.DecodeChat checked is not checked again, but nothing here trusts
// it either: what cannot be understood is a fault.
func converse(body []byte, o Options) (*conversation, error) {
	f, err := readFields(body)
	if err != nil {
		return nil, err
	}
	c := &conversation{markup: o.Version.markup(), oneCall: string(f.parallel) == "false"}
	if string(f.logprobs) == "true" {
		return nil, invalid("logprobs", "This engine gives no logprobs. Leave logprobs out.")
	}
	for _, step := range []func() error{
		func() error { return c.readMessages(f.messages) },
		func() error { return c.readTools(f.tools) },
		func() error { return c.readChoice(f.choice) },
		func() error { return c.readThinking(f, o) },
		func() error { return c.readFormat(f.format) },
		func() error { return c.readStops(f.stop) },
		c.checkMessages,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// str decodes a JSON string, "" for anything else.
func str(raw []byte) string {
	text, _ := scan.Text(nil, raw)
	return string(text)
}

// member finds a member of an object; nil when it is not there or null.
func member(raw []byte, name string) (value []byte) {
	m := scan.Object(raw)
	for m.Next() {
		if string(m.Key) == name {
			value = m.Value
		}
	}
	if string(value) == "null" {
		return nil
	}
	return value
}

func at(i int) string { return fmt.Sprintf("messages[%d]", i) }
