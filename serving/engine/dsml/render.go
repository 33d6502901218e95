package dsml

import (
	"slices"
	"strings"
)

// Options are what a deployment decides about rendering.
type Options struct {
	Version        Version
	ThinkByDefault bool // requests that say nothing of thinking or effort think
}

// Render makes the prompt of a Chat Completions body. body must be valid JSON, as protocol.DecodeChat leaves it. What
// cannot be rendered is a fault of kind Invalid that names the member.
func Render(body []byte, o Options) (*Prompt, error) {
	c, err := converse(body, o)
	if err != nil {
		return nil, err
	}
	var w writer
	w.special(tokenBegin)
	messages := w.systems(c)
	inUser := false
	for i := range messages {
		msg := &messages[i]
		switch msg.role {
		case "system":
			w.special(tokenSystem)
			w.content(msg)
			inUser = false
		case "assistant":
			w.assistant(c, msg)
			inUser = false
		default: // results of tools are a user's words, and words in a row are paragraphs of one turn
			if inUser {
				w.text("\n\n")
			} else {
				w.special(tokenUser)
			}
			w.userPart(msg)
			inUser = true
		}
	}
	p := &Prompt{Images: c.images, Ignored: c.ignored, Parse: w.begin(c)}
	w.flush()
	p.Segments = w.segments
	return p, nil
}

// systems writes the head and returns the messages that follow it. V4 has one system prompt, made of all of them, and one
// message of what a user said in a row.
func (w *writer) systems(c *conversation) []message {
	messages := slices.DeleteFunc(slices.Clone(c.messages), func(m message) bool { return m.role == "system" && m.empty() })
	system := ""
	if c.markup.systemToken {
		if len(messages) > 0 && messages[0].role == "system" {
			system, messages = messages[0].text(), messages[1:]
		}
		w.head(c, system)
		return messages
	}
	rest, parts := make([]message, 0, len(messages)), []string(nil)
	for i := range messages {
		msg, n := &messages[i], len(rest)
		switch {
		case msg.role == "system":
			parts = append(parts, msg.text())
		case n > 0 && msg.role == "user" && rest[n-1].role == "user":
			rest[n-1].join(msg)
		default:
			rest = append(rest, *msg)
		}
	}
	w.head(c, strings.Join(parts, "\n\n"))
	return rest
}

func (w *writer) userPart(msg *message) {
	if msg.role == "tool" {
		w.text("<tool_result>")
		defer w.text("</tool_result>")
	}
	w.content(msg)
}

// begin opens the model's turn and says how its text is to be read.
func (w *writer) begin(c *conversation) ParseOptions {
	p := ParseOptions{Tools: len(c.tools) > 0, JSON: c.json, Stops: c.stops, OneCall: c.oneCall}
	if last := &c.messages[len(c.messages)-1]; last.prefix {
		switch {
		case !last.empty():
			p.Start = ContentContinued
		case !c.thinking:
			p.Start = ContentStart
		case last.reasoning != "":
			p.Start = ReasoningContinued
		default:
			p.Start = ReasoningStart
		}
		return p
	}
	w.special(tokenAssistant)
	if c.thinking {
		p.Start = ReasoningStart
		w.special(tokenThink)
		return p
	}
	w.special(tokenThinkEnd)
	if c.forced {
		p.Start = InCalls
		w.text("\n\n")
		w.open(c.markup, c.markup.calls)
		w.text("\n")
	}
	return p
}
