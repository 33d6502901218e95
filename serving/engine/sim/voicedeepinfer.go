package sim

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/tok"
)

// deepinferVoice is an engine behind DeepInfer's adapter: it continues prompts that come as segments, and writes reasoning
// and calls as the model does, in its text.
type deepinferVoice struct{ vllmVoice }

func (deepinferVoice) traits() traits { return traits{continuous: true, shape: kvevent.Tagged} }

func (deepinferVoice) takes(q *request, key string, value []byte) (bool, error) {
	switch key {
	case "segments":
		return false, q.segments(value)
	case "prompt", "messages":
		return false, invalid(key, "This engine takes segments.")
	}
	return true, nil
}

func (deepinferVoice) metric(string) string { return "" }

// The tokens of the dialogue that this engine minds.
const (
	specialUser     = "<｜User｜>"
	specialThink    = "<think>"
	specialThinkEnd = "</think>"
	specialMarkup   = "｜DSML｜"
)

// continuation is what a simulated model has understood of a prompt.
type continuation struct {
	thinks   bool // it is to think first
	calling  bool // the prompt has begun a block of calls
	tools    []tool
	question string // what the user said last
}

// segments reads a prompt: its tokens, and what it is about.
func (q *request) segments(value []byte) error {
	var all []struct {
		Text    *string `json:"text"`
		Special *string `json:"special"`
	}
	if err := json.Unmarshal(value, &all); err != nil || len(all) == 0 {
		return invalid("segments", "segments must be a list of text and special tokens.")
	}
	q.raw = &continuation{}
	var ids []uint32
	said, users := "", 0
	for _, s := range all {
		switch {
		case s.Special != nil:
			ids = append(ids, tok.ID([]byte(*s.Special)))
			q.raw.thinks = *s.Special == specialThink
			if *s.Special == specialUser {
				said = ""
				users++
			}
		case s.Text != nil:
			ids = tok.Append(ids, []byte(*s.Text))
			said += *s.Text
			q.raw.thinks, q.raw.calling = false, strings.HasSuffix(*s.Text, "calls>\n")
			if users == 0 {
				q.raw.tools = append(q.raw.tools, toolsIn(*s.Text)...)
			}
			q.raw.question = said
		default:
			return invalid("segments", "A segment is text or special.")
		}
	}
	q.prompts = [][]uint32{ids}
	return nil
}

// toolsIn finds the schemas that a system prompt shows, one a line.
func toolsIn(text string) (all []tool) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, `{"name": `) {
			continue
		}
		var t tool
		if json.Unmarshal([]byte(line), &t.Function) == nil && t.Function.Name != "" {
			all = append(all, t)
		}
	}
	return all
}

// continueRaw writes what the model would: thoughts, then calls or words.
func (e *Engine) continueRaw(s *script, p *continuation) {
	if p.thinks {
		s.say(reasoning, reasonPieces, effortSentences["medium"])
		s.add(segment{part: content, fixed: []piece{rawPiece(specialThinkEnd)}, n: 1})
	}
	tools := chooseTools(p.tools, nil, p.question)
	if p.calling && len(p.tools) > 0 {
		tools = p.tools[:1]
	}
	if len(tools) > 0 {
		s.text(content, rawCalls(tools, p.calling))
		return
	}
	s.say(content, openingPieces, leastSentences+int(s.seed>>40%uint64(mostSentences-leastSentences+1)))
}

func rawPiece(special string) piece {
	quoted, _ := json.Marshal(special) // strings always marshal
	return piece{text: special, json: string(quoted[1 : len(quoted)-1]), id: tok.ID([]byte(special))}
}

// rawCalls is a block of calls in the markup of V4.1; begun says that its first tag stands in the prompt.
func rawCalls(tools []tool, begun bool) string {
	var b strings.Builder
	if !begun {
		b.WriteString("\n\n<" + specialMarkup + " calls>\n")
	}
	for _, t := range tools {
		b.WriteString("<" + specialMarkup + ` invoke name="` + t.Function.Name + "\">\n")
		var args map[string]json.RawMessage
		_ = json.Unmarshal([]byte(arguments(t.Function.Parameters, maxSchemaDepth)), &args) // a schema of nothing has none
		for _, name := range slices.Sorted(maps.Keys(args)) {
			var said string
			text := json.Unmarshal(args[name], &said) == nil
			if !text {
				said = string(args[name])
			}
			b.WriteString("<" + specialMarkup + ` parameter name="` + name + `" string="` + map[bool]string{true: "true", false: "false"}[text] + `">` + said +
				"</" + specialMarkup + " parameter>\n")
		}
		b.WriteString("</" + specialMarkup + " invoke>\n")
	}
	b.WriteString("</" + specialMarkup + " calls>")
	return b.String()
}

func (deepinferVoice) routes(e *Engine, m *http.ServeMux) {
	m.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"version": "simulated", "ep_size": max(e.cfg.ExpertSize, 1), "dp_size": len(e.active()), "block_size": e.cfg.BlockSize, "context": e.context})
	})
	m.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) {
		var ranks []any
		for _, r := range e.active() {
			running, queued, tokens, usage := r.sched.load()
			ranks = append(ranks, map[string]any{"rank": r.n, "running": running, "waiting": queued, "queued_tokens": tokens, "kv_usage": usage})
		}
		writeJSON(w, http.StatusOK, map[string]any{"ranks": ranks, "prefix_hits": e.stats.hits.Load(), "prefix_queries": e.stats.queries.Load()})
	})
	m.HandleFunc("POST /v1/tokens", func(w http.ResponseWriter, r *http.Request) {
		q, err := e.read(w, r, false)
		if err != nil {
			e.writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{"tokens": q.prompts[0]})
	})
}
