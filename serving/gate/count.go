package gate

import (
	"context"
	"net/http"
	"time"

	"millrace/internal/ids"
	"millrace/tenants/limits"
)

// countTimeout is how long an engine may take to count a prompt's tokens.
const countTimeout = 5 * time.Second

// Count is a prompt's length in tokens.
type Count struct {
	Tokens int64
	Exact  bool // by an engine's own tokenizer and template
	lease  limits.Lease
}

// AnthropicHeaders sets the headers that tell of the key's limits.
func (c *Count) AnthropicHeaders(h http.Header) { c.lease.AnthropicHeaders(h) }

// CountTokens counts a prompt by a tokenizer of the model's engines, where one tells; else it gives the estimate. It takes
// one request from the key's limits, costs nothing and leaves no event: nothing is generated.
func (g *Gate) CountTokens(ctx context.Context, req Request, estimate int64) (Count, error) {
	if err := g.enter(); err != nil {
		req.Early.End()
		return Count{}, err
	}
	defer g.leave()
	var lease limits.Lease
	var err error
	if req.Early != nil {
		lease = req.Early.lease
	} else if lease, err = g.take(&req.Caller, 0); err != nil {
		return Count{}, err
	}
	counted := Count{Tokens: estimate, lease: lease}
	defer lease.Done(0)
	t := &Ticket{gate: g, req: req}
	if t.model, err = g.find(req.Chat); err != nil {
		return Count{}, err
	}
	if req.Chat.RemoteImages > 0 { // no engine is asked: it would have to fetch them
		return counted, nil
	}
	for _, u := range t.model.Units {
		if !u.Driver.Caps().Tokens {
			continue
		}
		var b body
		if err := b.prepare(t, u, ids.New()); err != nil {
			return Count{}, err
		}
		ask, cancel := context.WithTimeout(ctx, countTimeout)
		tokens, err := u.Driver.Tokens(ask, u.Client(), u.Base, b.text)
		cancel()
		if err == nil {
			counted.Tokens, counted.Exact = int64(len(tokens)), true
			return counted, nil
		}
	}
	return counted, nil
}
