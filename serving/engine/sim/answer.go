package sim

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// thinkSuffix at the end of a model's name makes it reason before it answers.
const thinkSuffix = "-think"

// Lengths of what is made up, in sentences.
const (
	leastSentences = 1
	mostSentences  = 7
)

var effortSentences = map[string]int{"minimal": 1, "low": 2, "medium": 4, "high": 8, "xhigh": 16, "max": 16}

// write fixes answer i to a prompt: what a test prescribed, tool calls, or sentences. The same request gets the same
// answer, whatever the temperature.
func (e *Engine) write(q *request, prompt []uint32, i int) *script {
	said := ""
	if q.resume != nil {
		prompt, said = q.resume.base, q.resume.said
	}
	s := &script{seed: e.answerSeed(q, prompt, i), segments: make([]segment, 0, 2)}
	if q.scripted != nil {
		e.follow(s, q.scripted)
	} else if q.raw != nil {
		e.continueRaw(s, q.raw)
	} else {
		e.improvise(s, q)
	}
	if s.total == 0 {
		s.say(content, openingPieces, leastSentences)
	}
	switch {
	case q.ignoreEnd:
		s.extend(q.maxTokens + len(said))
	case q.minTokens > 0:
		s.extend(min(q.minTokens, q.maxTokens) + len(said))
	}
	if len(q.stops) > 0 {
		s.stopAt(q.stops)
	}
	if said != "" {
		s.skip(said)
	}
	return s
}

// answerSeed hashes what decides an answer: the engine's seed, the client's, the end of the prompt and the answer's index.
// The end is enough, and a long prompt is not hashed twice.
func (e *Engine) answerSeed(q *request, prompt []uint32, i int) uint64 {
	const tail = 64 // tokens
	var space [8 * 3 * 16]byte
	b := binary.LittleEndian.AppendUint64(space[:0], e.cfg.Seed)
	b = binary.LittleEndian.AppendUint64(b, q.seed)
	b = binary.LittleEndian.AppendUint64(b, uint64(i)<<32|uint64(len(prompt)))
	for _, id := range prompt[max(0, len(prompt)-tail):] {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return xxhash.Sum64(b)
}

func (e *Engine) follow(s *script, want *scripted) {
	if want.Reasoning != "" {
		s.text(reasoning, want.Reasoning)
	}
	s.text(content, want.Text)
	for _, c := range want.ToolCalls {
		s.tool(c.Name, c.Arguments)
	}
	if want.Tokens <= 0 {
		return
	}
	s.extend(want.Tokens)
	s.total = want.Tokens
}

func (e *Engine) improvise(s *script, q *request) {
	if q.think {
		n, ok := effortSentences[q.effort]
		if !ok {
			n = effortSentences["medium"]
		}
		s.say(reasoning, reasonPieces, n)
	}
	var question, last string
	if len(q.tools) > 0 || bytes.Contains(q.messages, []byte(`"tool"`)) {
		question, last = lastMessages(q.messages)
	}
	if last != "tool" && e.call(s, chooseTools(q.tools, q.toolChoice, question)) {
		return
	}
	sentences := leastSentences + int(s.seed>>40%uint64(mostSentences-leastSentences+1))
	switch {
	case q.format.on():
		s.text(content, q.format.answer())
	case last == "tool":
		s.say(content, toolPieces, leastSentences)
	case q.chat:
		s.say(content, openingPieces, sentences)
	default:
		s.say(content, nil, sentences)
	}
}

// call calls functions with arguments that their schemas allow; false when there are none.
func (e *Engine) call(s *script, tools []tool) bool {
	for _, t := range tools {
		args := "{}"
		if len(t.Function.Parameters) > 0 {
			if a := arguments(t.Function.Parameters, maxSchemaDepth); strings.HasPrefix(a, "{") {
				args = a
			}
		}
		s.tool(t.Function.Name, args)
	}
	return len(tools) > 0
}
