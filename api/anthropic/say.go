package anthropic

import (
	"fmt"
	"slices"

	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/serving/catalogue"
	"millrace/serving/gate"
	"millrace/serving/protocol/messages"
)

// say makes what the pipeline says of a request something about the request as the client knows it.
func say(req *messages.Request, err error) error {
	f := fault.Of(err)
	if f.Code != problem.CodeContext {
		return req.Translate(err)
	}
	own := *f
	own.Message = overflow(err, req.Chat.MaxTokens)
	return &own
}

// overflow words that a request does not fit the context as Anthropic's API does: agents read it, and shorten the
// conversation or ask for fewer tokens.
func overflow(err error, asked int64) string {
	o, _ := gate.OverflowOf(err)
	switch {
	case o.Window == 0:
		return "prompt is too long: it does not fit this model's context"
	case o.Prompt == 0:
		return fmt.Sprintf("prompt is too long: with max_tokens it is more than this model's context of %d tokens", o.Window)
	case o.Prompt > o.Window:
		return fmt.Sprintf("prompt is too long: %d tokens > %d maximum", o.Prompt, o.Window)
	}
	return fmt.Sprintf("input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length or `max_tokens` and try again",
		o.Prompt, asked, o.Window)
}

// canPrefill refuses a conversation that ends with the beginning of an answer where an engine of the model would begin anew.
func (a *API) canPrefill(req *messages.Request) error {
	if req.Prefill == "" {
		return nil
	}
	m, known := a.Models.Model(req.Chat.Model)
	if !known {
		return nil // the gate says so
	}
	fresh := func(u *catalogue.Unit) bool { return !u.Driver.Caps().Prefill }
	if !slices.Contains(m.Extras, "continue_final_message") || slices.ContainsFunc(m.Units, fresh) {
		return fault.New(fault.Invalid, "This model cannot go on with a message of the assistant's: the conversation must end with one of the user's.").
			WithParam(req.Prefill).WithCode("unsupported_value")
	}
	return nil
}
