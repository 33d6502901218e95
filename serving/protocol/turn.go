package protocol

import (
	"bytes"
	"strconv"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// PartKind says what a part of an answer is.
type PartKind int

// The kinds.
const (
	Reasoning PartKind = reasoning
	Text      PartKind = content
	Refusal   PartKind = refusal
	Call      PartKind = numTexts
)

// Part is one piece of an answer in its order: a run of reasoning, of text or of a refusal, or one tool call. What it
// holds are insides of JSON strings, still escaped.
type Part struct {
	Kind     PartKind
	Text     []byte // what was said; of a call its arguments
	ID, Name []byte // of a call
	Logprobs []byte // elements of OpenAI's list, without its brackets

	held            bool // a call whose name may not be whole
	open            bool
	shown, shownLog int // of Text and Logprobs
	looked          int // of Text: so much of a call's arguments is known not to be whole
}

// Sink is told how a turn grows: parts open one after another, never two at a time. Every method appends to dst what the
// client may see of it now.
type Sink interface {
	// Begin comes first; prompt is the engine's count of prompt tokens, -1 when it has not said.
	Begin(dst []byte, prompt int64) []byte
	Open(dst []byte, i int, p *Part) []byte
	// Delta gives what is new of part i; p.Text holds all of it so far.
	Delta(dst []byte, i int, p *Part, text, logprobs []byte) []byte
	Close(dst []byte, i int, p *Part) []byte
}

// Silent is the sink of whole answers: nothing is shown before the end.
type Silent struct{}

// Begin implements Sink.
func (Silent) Begin(dst []byte, _ int64) []byte { return dst }

// Open implements Sink.
func (Silent) Open(dst []byte, _ int, _ *Part) []byte { return dst }

// Delta implements Sink.
func (Silent) Delta(dst []byte, _ int, _ *Part, _, _ []byte) []byte { return dst }

// Close implements Sink.
func (Silent) Close(dst []byte, _ int, _ *Part) []byte { return dst }

// Turn is the canonical form of an answer with one choice, for dialects whose answers are lists of parts: it reads the
// engine's stream and keeps the parts, so that a whole answer and an accumulated stream are the same.
//
// Invariants: parts are opened, and closed, in their order; a part grows only while it is open; no part is empty but a
// call without arguments; within one chunk reasoning comes before text and text before calls.
type Turn struct {
	Parts  []Part
	Finish string // "stop", "length", "tool_calls" or "content_filter" once the engine has ended the answer
	Stop   []byte // the stop sequence that ended it, inside of a JSON string; nil = none told

	answer  string // the answer's id, for calls without one
	counter string
	shapes  shapes
	chunk   chunk
	calls   calls
	places  []int // of each call among the parts, -1 = its name has not come
	head    int   // the first part that is not closed
	begun   bool
	prompt  int64
	size    int
}

// Reset makes the turn ready for an answer and keeps its memory.
func (t *Turn) Reset(p *AnswerParams) {
	parts := t.Parts
	for i := range parts {
		old := parts[i]
		parts[i] = Part{}
		if cap(old.Text) <= maxKeptText {
			parts[i].Text = old.Text[:0]
		}
	}
	t.shapes.reset()
	*t = Turn{Parts: parts[:0], answer: p.ID, counter: p.Counter, shapes: t.shapes, chunk: t.chunk, calls: t.calls.reset(),
		places: t.places[:0], prompt: -1}
}

// Add takes in one event's data and tells the sink. Errors are those of Answer.Add.
func (t *Turn) Add(dst, data []byte, s Sink) ([]byte, Step, error) {
	if t.size += len(data); t.size > MaxAnswerBytes {
		return dst, Step{Tokens: -1}, ErrAnswerTooLarge
	}
	if sh, text, tokens := t.shapes.match(data); sh != nil && sh.choice == 0 && t.Finish == "" {
		dst = t.say(dst, s, PartKind(sh.text), text, nil)
		return dst, Step{Says: true, Usage: sh.usage, Tokens: tokens}, nil
	}
	if string(data) == doneData {
		return dst, Step{Done: true, Tokens: -1}, nil
	}
	if err := t.chunk.parse(data, t.counter); err != nil {
		return dst, Step{Tokens: -1}, err
	}
	step := t.chunk.step()
	if !t.begun && step.Usage {
		t.prompt = t.chunk.prompt()
	}
	for i := range t.chunk.choices {
		var err error
		if dst, err = t.delta(dst, s, &t.chunk.choices[i]); err != nil {
			return dst, step, err
		}
	}
	t.shapes.learn(data, &t.chunk)
	return dst, step, nil
}

func (t *Turn) delta(dst []byte, s Sink, d *delta) ([]byte, error) {
	if d.index != 0 {
		return dst, ErrMalformed
	}
	if t.Finish != "" {
		return dst, nil
	}
	logprobs := contentLogprobs(d.logprobs)
	for which, text := range d.texts {
		if len(text) <= len(`""`) {
			continue
		}
		if PartKind(which) != Text {
			dst = t.say(dst, s, PartKind(which), field.Inside(text), nil)
			continue
		}
		dst, logprobs = t.say(dst, s, Text, field.Inside(text), logprobs), nil
	}
	if d.tools != nil {
		if !t.calls.add(d.tools, t.call) {
			return dst, ErrMalformed
		}
		dst = t.advance(t.begin(dst, s), s)
	}
	if d.finish == nil {
		return dst, nil
	}
	reason, err := finishReason(d.finish)
	if err != nil {
		return dst, err
	}
	t.Finish = string(field.Inside([]byte(reason)))
	t.Stop = append([]byte(nil), d.stopped...)
	return t.advance(t.begin(dst, s), s), nil
}

func (t *Turn) begin(dst []byte, s Sink) []byte {
	if t.begun {
		return dst
	}
	t.begun = true
	return s.Begin(dst, t.prompt)
}

// say adds to a text: to the latest part, or to a new one.
func (t *Turn) say(dst []byte, s Sink, kind PartKind, text, logprobs []byte) []byte {
	if n := len(t.Parts); n == 0 || t.Parts[n-1].Kind != kind {
		t.grow().Kind = kind
	}
	p := &t.Parts[len(t.Parts)-1]
	p.Text = append(p.Text, text...)
	p.Logprobs = appendElements(p.Logprobs, logprobs)
	return t.advance(t.begin(dst, s), s)
}

// grow adds a part, in memory that an earlier answer left where there is some.
func (t *Turn) grow() *Part {
	if n := len(t.Parts); n < cap(t.Parts) {
		t.Parts = t.Parts[:n+1]
		t.Parts[n] = Part{Text: t.Parts[n].Text[:0]}
		return &t.Parts[n]
	}
	t.Parts = append(t.Parts, Part{})
	return &t.Parts[len(t.Parts)-1]
}

// call takes over what came of a call. What comes for one that was closed is dropped: its arguments were whole.
func (t *Turn) call(i int) {
	k := &t.calls.list[i]
	for len(t.places) <= i {
		t.places = append(t.places, -1)
	}
	if len(k.name) == 0 {
		return
	}
	if t.places[i] < 0 {
		t.places[i] = len(t.Parts)
		p := t.grow()
		p.Kind, p.ID = Call, k.appendID(nil, t.answer, 0)
	}
	if p := &t.Parts[t.places[i]]; !p.open {
		p.Name, p.held = k.name, !k.whole
	}
	if at := t.places[i]; at >= t.head {
		t.Parts[at].Text = append(t.Parts[at].Text, k.args...)
	}
	k.args = k.args[:0]
}

// advance shows what may be shown: all of the first open part, and of those behind it once that one is closed. A call is
// opened when its name is whole, and closed when another part follows and its arguments are whole: engines may still come
// back to one that is not.
func (t *Turn) advance(dst []byte, s Sink) []byte {
	for ; t.head < len(t.Parts); t.head++ {
		i, p := t.head, &t.Parts[t.head]
		last := i == len(t.Parts)-1
		if p.held && last && t.Finish == "" {
			return dst
		}
		if !p.open {
			p.open = true
			dst = s.Open(dst, i, p)
		}
		if len(p.Text) > p.shown {
			dst = s.Delta(dst, i, p, p.Text[p.shown:], bytes.TrimPrefix(p.Logprobs[p.shownLog:], []byte(",")))
			p.shown, p.shownLog = len(p.Text), len(p.Logprobs)
		}
		if t.Finish == "" && (last || p.Kind == Call && !p.whole()) {
			return dst
		}
		dst = s.Close(dst, i, p)
	}
	return dst
}

// whole reports whether a call's arguments are whole. They are looked at once for each time that they grew.
func (p *Part) whole() bool {
	if p.looked > 0 && p.looked == len(p.Text) {
		return false
	}
	p.looked = len(p.Text)
	return wholeObject(p.Text)
}

// wholeObject reports whether the inside of a JSON string holds a whole JSON object.
func wholeObject(text []byte) bool {
	if len(text) < 2 || text[len(text)-1] != '}' {
		return false
	}
	plain := scan.Unquote(nil, text)
	at := scan.Space(plain, 0)
	return at < len(plain) && plain[at] == '{' && scan.Value(plain, at) >= 0
}

// Limit ends the answer as if a token limit had been reached.
func (t *Turn) Limit() {
	if t.Finish == "" {
		t.Finish = "length"
	}
}

// HasCalls reports whether the answer holds a tool call.
func (t *Turn) HasCalls() bool {
	for i := range t.Parts {
		if t.Parts[i].Kind == Call {
			return true
		}
	}
	return false
}

// contentLogprobs is the list of a choice's logprobs for its text; nil = none.
func contentLogprobs(raw []byte) (list []byte) {
	if raw == nil {
		return nil
	}
	m := scan.Object(raw)
	for m.Next() {
		if string(m.Key) == "content" {
			list = m.Value
		}
	}
	return list
}

// prompt is the engine's count of prompt tokens, -1 when the chunk does not tell.
func (c *chunk) prompt() int64 {
	m := scan.Object(c.usage)
	for m.Next() {
		if string(m.Key) == "prompt_tokens" {
			if n, err := strconv.ParseInt(string(m.Value), 10, 64); err == nil && n >= 0 {
				return n
			}
		}
	}
	return -1
}
