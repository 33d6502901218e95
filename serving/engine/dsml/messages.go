package dsml

import (
	"sort"

	"millrace/serving/engine/scan"
)

func (c *conversation) readMessages(raw []byte) error {
	e := scan.Array(raw)
	for e.Next() {
		if len(c.messages) == maxMessages {
			return invalid("messages", "There are more than %d messages.", maxMessages)
		}
		msg, err := c.readMessage(e.Value, at(len(c.messages)))
		if err != nil {
			return err
		}
		c.messages = append(c.messages, msg)
	}
	if e.Err() != nil || len(c.messages) == 0 {
		return invalid("messages", "messages must be an array of at least one message.")
	}
	return nil
}

func (c *conversation) readMessage(raw []byte, where string) (msg message, err error) {
	var content, refusal, calls []byte
	m := scan.Object(raw)
	for m.Next() {
		switch string(m.Key) {
		case "role":
			msg.role = str(m.Value)
		case "content":
			content = m.Value
		case "refusal":
			refusal = m.Value
		case "reasoning_content":
			msg.reasoning = str(m.Value)
		case "tool_calls":
			calls = m.Value
		case "tool_call_id":
			msg.answers = str(m.Value)
		case "prefix":
			msg.prefix = string(m.Value) == "true"
		}
	}
	switch msg.role {
	case "developer":
		msg.role = "system"
	case "system", "user", "assistant", "tool":
	default:
		return msg, invalid(where+".role", "role must be one of system, user, assistant, tool.")
	}
	if content == nil || string(content) == "null" {
		content = refusal
	}
	if msg.content, err = c.readContent(content, where+".content"); err != nil || msg.role != "assistant" {
		return msg, err
	}
	msg.calls, err = readCalls(calls, where+".tool_calls")
	return msg, err
}

// readContent reads a string or an array of parts. Parts are paragraphs.
func (c *conversation) readContent(raw []byte, where string) ([]Segment, error) {
	if len(raw) == 0 || raw[0] != '[' {
		return []Segment{{Text: str(raw)}}, nil
	}
	var w writer
	e := scan.Array(raw)
	for n := 0; e.Next(); n++ {
		if n > 0 {
			w.text("\n\n")
		}
		switch kind := str(member(e.Value, "type")); kind {
		case "text", "refusal":
			w.text(str(member(e.Value, kind)))
		case "image_url":
			c.image(&w, member(e.Value, "image_url"))
		default:
			return nil, invalid(where, "This engine takes content parts of type text and image_url only.")
		}
	}
	w.flush()
	return w.segments, nil
}

// image puts an image's placeholder, or says that the model cannot see it.
func (c *conversation) image(w *writer, raw []byte) {
	if !c.markup.images {
		w.text("[Unsupported Image]")
		c.ignored = append(c.ignored, "image_url")
		return
	}
	w.special(tokenImage)
	c.images = append(c.images, str(member(raw, "url")))
}

func readCalls(raw []byte, where string) (list []toolCall, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	e := scan.Array(raw)
	for e.Next() {
		fn := member(e.Value, "function")
		call := toolCall{str(member(e.Value, "id")), str(member(fn, "name")), str(member(fn, "arguments"))}
		if call.id == "" || call.name == "" {
			return nil, invalid(where, "A tool call needs an id and function.name.")
		}
		list = append(list, call)
	}
	return list, nil
}

// checkMessages checks the order of messages: every call has its result, right behind it, and a prefix is the last word.
// Results are sorted as their calls were made.
func (c *conversation) checkMessages() error {
	for i := 0; i < len(c.messages); i++ {
		msg := &c.messages[i]
		switch {
		case msg.role == "tool":
			return invalid(at(i), "A tool message must follow the assistant message whose call it answers.")
		case msg.prefix && (msg.role != "assistant" || i != len(c.messages)-1):
			return invalid(at(i)+".prefix", "Only the last message can be a prefix, and only an assistant's.")
		case msg.prefix && (len(c.tools) > 0 || len(msg.calls) > 0):
			return invalid(at(i)+".prefix", "A prefix cannot be continued together with tools. Leave out one of them.")
		case len(msg.calls) == 0:
			continue
		}
		if err := c.sortResults(i); err != nil {
			return err
		}
		i += len(msg.calls)
	}
	return nil
}

// sortResults puts the results behind the assistant message i into the order of its calls.
func (c *conversation) sortResults(i int) error {
	calls := c.messages[i].calls
	results := c.messages[i+1 : min(i+1+len(calls), len(c.messages))]
	place := make(map[string]int, len(calls))
	for n, call := range calls {
		place[call.id] = n
	}
	seen := make(map[string]bool, len(calls))
	for n, r := range results {
		if r.role != "tool" {
			results = results[:n]
			break
		}
		if _, ok := place[r.answers]; !ok || seen[r.answers] {
			return invalid(at(i+1+n)+".tool_call_id", "There is no call with this id in the assistant message before, or it was answered already.")
		}
		seen[r.answers] = true
	}
	if len(results) < len(calls) {
		return invalid(at(i)+".tool_calls", "Every call must be answered by a tool message right behind it; %d of %d are.", len(results), len(calls))
	}
	sort.SliceStable(results, func(a, b int) bool { return place[results[a].answers] < place[results[b].answers] })
	return nil
}
