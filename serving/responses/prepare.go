package responses

import (
	"context"
	"encoding/hex"

	"millrace/internal/ids"
	"millrace/serving/gate"
	"millrace/serving/protocol"
	dialect "millrace/serving/protocol/responses"
)

// Prepared is a request with all that it continues from.
type Prepared struct {
	Call
	Chat    *protocol.ChatRequest
	Answers *dialect.Answers

	before [][]byte    // arrays of items of the turns before
	early  *gate.Early // taken before anything was read; nil = nothing was
	cut    cut
}

// Admission is what the gate is asked. What was taken early is used up by it.
func (p *Prepared) Admission(s *Service) gate.Request {
	early := p.early
	p.early = nil
	return gate.Request{ID: p.cut.request(p.ID), Caller: p.Caller, Chat: p.Chat, Early: early, Dialect: &gate.Dialect{Name: "responses", Prefix: dialect.ResponsePrefix,
		Frame: s.o.Frame, Answer: p.Answers.New}}
}

// Prepare finds what the request continues from and writes the request for the engines. last is what a connection
// remembers of its latest response; nil = nothing.
func (s *Service) Prepare(ctx context.Context, c Call, last *Last) (*Prepared, error) {
	if err := s.room(ctx, &c); err != nil {
		return nil, err
	}
	p, err := s.prepare(ctx, c, last, nil)
	if err != nil {
		return nil, err
	}
	p.Answers = &dialect.Answers{Request: c.Request, ID: ids.Format("resp", c.ID), Now: s.o.Clock.Now, Seal: s.seal(&c)}
	if c.Request.Store || c.Request.Conversation != "" || last != nil {
		p.Answers.Keep = func(response []byte) bool { return s.keep(p, response, last) }
	}
	return p, nil
}

// Compact prepares a compaction: the same conversation, at whose end the model is asked for a summary.
func (s *Service) Compact(ctx context.Context, c Call) (gate.Request, error) {
	c.Request.Stream, c.Request.Store = false, false
	p, err := s.prepare(ctx, c, nil, []byte(dialect.Summarize))
	if err != nil {
		return gate.Request{}, err
	}
	compactions := dialect.Compactions{Seal: s.seal(&c)}
	return gate.Request{ID: c.ID, Caller: c.Caller, Chat: p.Chat, Early: p.early, Dialect: &gate.Dialect{Name: "responses", Prefix: dialect.ResponsePrefix,
		Frame: s.o.Frame, Answer: compactions.New}}, nil
}

func (s *Service) prepare(ctx context.Context, c Call, last *Last, after []byte) (p *Prepared, err error) {
	p = &Prepared{Call: c}
	defer func() {
		if err != nil {
			p.early.End()
			p = nil
		}
	}()
	req := c.Request
	if last.is(req.Previous) {
		p.before = last.items
	} else if err = s.earlier(ctx, p); err != nil {
		return p, err
	}
	from := dialect.Context{Items: p.before, Seal: s.seal(&c), After: after, Refuse: s.o.Refuse, Find: func(id string) ([]byte, error) { return s.find(ctx, p, id) }}
	if req.Store || req.Conversation != "" || last != nil {
		from.Keep = hex.EncodeToString(c.ID[:])
	}
	if p.Chat, err = req.Chat(&from); err == nil {
		p.hint()
	}
	return p, err
}

// hint says where the client's session is, when its request does not.
func (p *Prepared) hint() {
	if p.Chat.CacheKey == "" {
		p.Chat.CacheKey = p.Session
	}
}
