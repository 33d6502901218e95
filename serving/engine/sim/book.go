package sim

import (
	"fmt"

	"millrace/serving/engine/scan"
	"millrace/serving/engine/tok"
)

// piece is one token of an answer.
type piece struct {
	text string
	json string // text inside a JSON string, without the quotes
	id   uint32
}

// volume is text cut into tokens, of which every answer is a walk.
type volume struct {
	pieces []piece
	starts []int // where sentences begin; the last is len(pieces)
}

// Openings of answers: a person who reads one learns that no model wrote it.
const (
	opening    = "This is a simulated engine: no model has read your question, and this text is made by rule."
	afterTool  = "This is a simulated engine, and it has received the tool's result."
	reasonings = "Simulated reasoning, by rule: a real model would think here."
)

// bookSentences is how many sentences there are to walk through; longer answers begin again.
const bookSentences = 1024

var (
	book           = newVolume(sentences(bookSentences))
	openingPieces  = cut(opening)
	toolPieces     = cut(afterTool)
	reasonPieces   = cut(reasonings)
	bookOpenings   = [...]string{"The", "One", "Every", "Each", "This", "That", "No", "Another"}
	bookAdjectives = [...]string{"old", "quiet", "patient", "wet", "narrow", "bright", "slow", "careful", "stone", "wooden", "early", "distant"}
	bookNouns      = [...]string{"mill", "river", "wheel", "miller", "sluice", "weir", "barge", "meadow", "granary", "bridge", "heron", "ledger", "lantern", "apprentice"}
	bookVerbs      = [...]string{"turns", "feeds", "follows", "carries", "counts", "waits for", "remembers", "guards", "outlasts", "answers", "measures", "repairs"}
	bookEndings    = [...]string{"before dawn", "in the rain", "without hurry", "until the flood", "at the second bell", "past the locks", "with great care", "all winter", "by lamplight", "once more"}
)

// sentences makes n different-looking sentences, each with a leading space. A multiplicative walk instead of a random
// generator: the text is the same in every release.
func sentences(n int) []string {
	all := make([]string, n)
	state := uint64(0x9E3779B97F4A7C15)
	pick := func(words []string) string {
		state = state*6364136223846793005 + 1442695040888963407
		return words[(state>>33)%uint64(len(words))]
	}
	for i := range all {
		all[i] = fmt.Sprintf(" %s %s %s %s the %s %s %s.", pick(bookOpenings[:]), pick(bookAdjectives[:]), pick(bookNouns[:]),
			pick(bookVerbs[:]), pick(bookAdjectives[:]), pick(bookNouns[:]), pick(bookEndings[:]))
	}
	return all
}

func newVolume(all []string) volume {
	var v volume
	for _, s := range all {
		v.starts = append(v.starts, len(v.pieces))
		v.pieces = append(v.pieces, cut(s)...)
	}
	v.starts = append(v.starts, len(v.pieces))
	return v
}

// cut makes tokens of text.
func cut(text string) []piece {
	var all []piece
	for text != "" {
		n := tok.Piece([]byte(text))
		p := piece{text: text[:n], id: tok.ID([]byte(text[:n]))}
		quoted := string(scan.Quote(nil, p.text))
		p.json = quoted[1 : len(quoted)-1]
		all, text = append(all, p), text[n:]
	}
	return all
}

// walk is a run of n sentences from the one that seed picks: the offset of its first token and its length in tokens.
func (v *volume) walk(seed uint64, n int) (from, tokens int) {
	first := int(seed % uint64(len(v.starts)-1))
	for i := range n {
		s := (first + i) % (len(v.starts) - 1)
		tokens += v.starts[s+1] - v.starts[s]
	}
	return v.starts[first], tokens
}
