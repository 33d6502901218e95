package responses

import (
	"millrace/internal/ids"
	"millrace/serving/gate"
)

// maxTries bounds how often a conversation that does not fit is tried with less of its begin.
const maxTries = 4

// cut is what was left out of a conversation so far.
type cut struct {
	tries int
	drop  float64 // 0 = nothing, 1 = all but the last turn
	again ids.ID  // the request that is tried; Nil = the first one
}

// request is the id of the request that is made for a response.
func (c *cut) request(first ids.ID) ids.ID {
	if c.again == ids.Nil {
		return first
	}
	return c.again
}

// Shorten says whether an answer's error was that the conversation does not fit, where its client would rather lose the begin
// of it: then p holds less of it, and its next admission is another request, for the same response.
func (p *Prepared) Shorten(err error) bool {
	overflow, is := gate.OverflowOf(err)
	if !is || !p.Request.Truncates() || p.cut.tries == maxTries-1 {
		return false
	}
	drop := more(p.cut.drop, overflow)
	chat, err := p.Request.Shorten(drop)
	if err != nil {
		return false
	}
	p.cut = cut{tries: p.cut.tries + 1, drop: drop, again: ids.New()}
	p.Chat = chat
	p.hint()
	return true
}

// more is how much of a conversation to leave out when so much was not enough: what the engine's counts tell, with room for
// the answer, else half of what is there.
func more(drop float64, o gate.Overflow) float64 {
	half := drop + (1-drop)/2
	if o.Prompt == 0 || o.Window == 0 || drop > 0 {
		return half
	}
	return min(max(1-0.8*float64(o.Window)/float64(o.Prompt), 0.1), 0.95)
}
