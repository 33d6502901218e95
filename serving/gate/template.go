package gate

import (
	"errors"
	"regexp"

	"millrace/serving/protocol"
)

// templateRule is how engines refuse what a model's template does not take, and the way to say it otherwise. What follows is
// one more try of the same request: a client that makes an engine quote such words gains nothing by it.
type templateRule struct {
	words *regexp.Regexp
	apply func(*protocol.ChatRequest) bool // false = there is nothing to say otherwise
	told  string                           // to the client, in a header
}

var templateRules = []templateRule{
	{regexp.MustCompile(`(?i)system messages? (?:must|should|can only|is only|are only)|only the first message can be .{0,4}system|roles must alternate|unexpected (?:message )?role.{0,4}system`),
		(*protocol.ChatRequest).FoldSystem, "changed: system messages after the first are told in the user's turn, since this model takes none there"},
	{regexp.MustCompile(`(?i)missing .{0,4}reasoning_content|reasoning_content.{0,80}(?:missing|required|must be passed)`), (*protocol.ChatRequest).FillReasoning, ""},
}

// adapt says otherwise what a unit refused, and reports whether there is something to try again.
func (r *relay) adapt(err error) bool {
	var rej *rejected
	if !errors.As(err, &rej) || r.t.req.Chat.Task != protocol.TaskChat {
		return false
	}
	for _, rule := range templateRules {
		if !rule.words.MatchString(rej.text) || !rule.apply(r.t.req.Chat) {
			continue
		}
		if rule.told != "" {
			r.w.Header().Add("Millrace-Warning", rule.told)
		}
		return true
	}
	return false
}
