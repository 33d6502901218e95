package gate

import (
	"context"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
	"millrace/serving/protocol"
	"millrace/serving/route"
)

// Bounds of asking an engine for a prompt's tokens: a hit must be worth the question.
const (
	tokensTimeout  = 100 * time.Millisecond
	tokensMinBytes = 2 << 10
)

// bounds finds what admission needs of the prompt: how long it can be at most, and what routing goes by.
func (t *Ticket) bounds() {
	c, chat, units := &t.req.Caller, t.req.Chat, t.model.Units
	t.bound = engine.PromptBound(chat.Body, t.model.Context)
	salted := len(units) > 1 || units[0].Handoff != nil
	for _, u := range units {
		salted = salted || u.Driver.Caps().CacheSalt
	}
	if salted {
		t.salt = t.gate.Salts.CacheSalt(ids.Format(ids.Org, c.Org))
	}
	if chat.CacheKey != "" {
		var d xxhash.Digest
		d.Reset()
		_, _ = d.Write(c.Org[:]) // a session of one organization never meets another's
		_, _ = d.WriteString(chat.CacheKey)
		t.affinity = d.Sum64() | 1 // 0 means none
	}
}

// prepare makes the body for the engines and the keys that routing needs of it.
func (t *Ticket) prepare(ctx context.Context) error {
	if err := t.images(ctx); err != nil {
		return err
	}
	units := t.model.Units
	first := units[max(slices.IndexFunc(units, t.takes), 0)]
	if err := t.body.prepare(t, first, ids.New()); err != nil {
		return err
	}
	t.prompt = t.promptEstimate()
	if len(units) > 1 || first.Handoff != nil {
		t.hashPrompt(ctx, units)
	}
	return nil
}

// prepare writes the upstream body for one attempt at a unit.
func (b *body) prepare(t *Ticket, u *catalogue.Unit, attempt ids.ID) (err error) {
	p := engine.ChatParams{Model: u.UpstreamModel, RequestID: hexID(attempt), Plain: t.req.Chat.Task == protocol.TaskEmbedding, Rank: rankOf(t.rank)}
	if u.Driver.Caps().CacheSalt {
		p.Salt = t.salt
	}
	if m := t.model; t.bound+m.MaxOutput <= m.Context { // else the engine's own context is the limit
		p.MaxTokens = max(m.MaxOutput-t.replayed, 1)
	}
	chat := t.req.Chat.Body
	if t.resumed != nil {
		chat = t.resumed
	}
	b.driver, b.model, b.attempt = u.Driver, u.UpstreamModel, attempt
	b.text, err = u.Driver.PrepareChat(b.text[:0], chat, p)
	return err
}

// hashPrompt finds the prompt's prefix keys: of its tokens when they can be had quickly, else of its bytes.
func (t *Ticket) hashPrompt(ctx context.Context, units []*catalogue.Unit) {
	for _, u := range units {
		caps := u.Driver.Caps()
		local := u.Driver.Family() == engine.Sim
		if t.req.Chat.Task != protocol.TaskChat || u.Attached || !caps.Tokens || !caps.KVEvents || !local && len(t.body.text) < tokensMinBytes {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, tokensTimeout)
		tokens, err := u.Driver.Tokens(ask, u.Client(), u.Base, t.body.text)
		cancel()
		if err != nil {
			break
		}
		t.prompt, t.block = int64(len(tokens)), u.Driver.BlockSize()
		t.hashes = kvevent.ChainHashes(t.salt, tokens, t.block)
		return
	}
	t.approx, t.block = true, route.ApproxTokensPerByteBlock
	t.hashes = route.ByteChain(t.salt, t.req.Chat.Messages)
}

// candidate is a unit as the router sees it.
func (t *Ticket) candidate(u *catalogue.Unit) route.Candidate {
	c := route.Candidate{Unit: u.ID, Attached: u.Attached}
	if u.Handoff != nil {
		c.Prefill, c.Decode, c.Whole = u.IDs(engine.Prefill), u.IDs(engine.Decode), !t.handable()
		if u.Handoff.Alone() {
			c.Alone = u.MaxPrompt
		}
	}
	return c
}

// book picks, and waits a while when only hand-overs under way stand against it.
func (t *Ticket) book(ctx context.Context) (*route.Booking, error) {
	b, err := t.pick()
	if !route.Full(err) {
		return b, err
	}
	end := time.NewTimer(t.gate.Times.Queue)
	defer end.Stop()
	for {
		freed := t.gate.Router.Freed()
		if b, err = t.pick(); !route.Full(err) {
			return b, err
		}
		select {
		case <-freed:
		case <-end.C:
			return nil, err
		case <-ctx.Done():
			return nil, err
		}
	}
}

// pick books one of the model's units that has not failed this request.
func (t *Ticket) pick() (*route.Booking, error) {
	candidates := make([]route.Candidate, 0, len(t.model.Units))
	for _, u := range t.model.Units {
		if serves(u, t.rank) && t.takes(u) {
			candidates = append(candidates, t.candidate(u))
		}
	}
	out := t.req.Chat.MaxTokens
	if out == 0 {
		out = t.model.DefaultOutput
	}
	return t.gate.Router.Pick(route.Request{Model: t.model.ID, Candidates: candidates, Hashes: t.hashes, Approximate: t.approx,
		BlockSize: t.block, PromptTokens: t.prompt, OutputTokens: out, Affinity: t.affinity, Exclude: t.excluded})
}

// takes reports whether a unit's engine does what is asked for.
func (t *Ticket) takes(u *catalogue.Unit) bool {
	caps := u.Driver.Caps()
	switch {
	case t.resumed != nil && t.req.Chat.Task == protocol.TaskChat && !caps.Prefill:
		return false
	case u.Handoff != nil && !t.handable() && (!u.Handoff.Alone() || t.promptEstimate() > u.MaxPrompt):
		return false
	}
	return t.req.Chat.Task != protocol.TaskText || !caps.ChatOnly
}

func (t *Ticket) unit(id ids.ID) *catalogue.Unit {
	for _, u := range t.model.Units {
		if u.ID == id {
			return u
		}
	}
	return nil
}
