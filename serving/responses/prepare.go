package responses

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
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

// earlier reads the turns before.
func (s *Service) earlier(ctx context.Context, p *Prepared) (err error) {
	if p.Request.Previous == "" && p.Request.Conversation == "" {
		return nil
	}
	if err := s.takeEarly(ctx, p); err != nil {
		return err
	}
	if p.Request.Previous != "" {
		p.before, err = s.chain(ctx, &p.Call)
	} else {
		p.before, err = s.conversationItems(ctx, &p.Call)
	}
	return err
}

// takeEarly comes before anything is read for a request: who is over his limits, or can pay for nothing, costs us nothing.
func (s *Service) takeEarly(ctx context.Context, p *Prepared) (err error) {
	if p.early == nil && !p.Batch {
		p.early, err = s.o.Gate.Early(ctx, &p.Caller, p.Request.Model)
	}
	return err
}

// Warm takes a request from the key's limits for which nothing is to be generated.
func (s *Service) Warm(ctx context.Context, p *Prepared) error {
	err := s.takeEarly(ctx, p)
	p.early.End()
	return err
}

// chain is the items of the previous response and of all before it.
func (s *Service) chain(ctx context.Context, c *Call) (items [][]byte, err error) {
	id := responseID(c.Request.Previous)
	var rows []q.ResponseChainRow
	if id != ids.Nil {
		err = s.read(ctx, c.Caller.Org, func(all *q.Queries) error {
			rows, err = all.ResponseChain(ctx, q.ResponseChainParams{OrgID: c.Caller.Org, ProjectID: c.Caller.Project, ID: id, Now: s.now(), MaxDepth: maxChain, MaxBytes: maxEarlierBytes})
			return err
		})
	}
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, previousNotFound(c.Request.Previous)
	case rows[0].Bytes > maxEarlierBytes:
		return nil, earlierTooLarge()
	case len(rows) == maxChain:
		return nil, fault.New(fault.Invalid, "The chain of previous responses is longer than %d: send the conversation as input, or compact it.", maxChain).
			WithParam("previous_response_id")
	case rows[0].PreviousID != nil: // a link is gone: without it the model would answer to something else
		return nil, previousNotFound("resp_" + hex.EncodeToString(rows[0].PreviousID[:]))
	}
	for _, r := range rows {
		if !ended(r.Status) {
			return nil, fault.New(fault.Invalid, "The previous response is still being made: wait until it has ended.").WithParam("previous_response_id")
		}
		items = append(items, []byte(r.Input), dialect.Member([]byte(r.Response), "output"))
	}
	return items, nil
}

// maxEarlierBytes bounds what is read of earlier turns. It is more than engines get: kept responses say their requests' tools
// again.
const maxEarlierBytes = 4 * protocol.MaxBodyBytes

func earlierTooLarge() error {
	return fault.New(fault.TooLarge, "What this request continues from is larger than %d MiB: compact it, or begin anew.", maxEarlierBytes>>20)
}

func ended(status string) bool { return status != dialect.Queued && status != dialect.InProgress }

// itemID is the form of the ids that items get here: the response, then the item's place in its input or output.
var itemID = regexp.MustCompile(`^[a-z]+_([0-9a-f]{32})_(in)?([0-9]{1,6})$`)

// find gives an item that a request refers to by its id; nil = there is none.
func (s *Service) find(ctx context.Context, p *Prepared, id string) ([]byte, error) {
	for _, list := range p.before {
		for _, item := range dialect.Elements(list) {
			if dialect.Text(dialect.Member(item, "id")) == id {
				return item, nil
			}
		}
	}
	place := itemID.FindStringSubmatch(id)
	if place == nil {
		return nil, nil
	}
	if err := s.takeEarly(ctx, p); err != nil {
		return nil, err
	}
	row, err := s.row(ctx, &p.Call, responseID("resp_"+place[1]))
	if err != nil || row == nil {
		return nil, err
	}
	list := dialect.Member([]byte(row.Response), "output")
	if place[2] != "" {
		list = []byte(row.Input)
	}
	n, _ := strconv.Atoi(place[3])
	if items := dialect.Elements(list); n < len(items) && dialect.Text(dialect.Member(items[n], "id")) == id {
		return items[n], nil
	}
	return nil, nil
}

// row finds a response of the caller's project; nil = there is none.
func (s *Service) row(ctx context.Context, c *Call, id ids.ID) (found *q.ResponseByIDRow, err error) {
	if id == ids.Nil {
		return nil, nil
	}
	err = s.read(ctx, c.Caller.Org, func(rows *q.Queries) error {
		r, err := rows.ResponseByID(ctx, q.ResponseByIDParams{OrgID: c.Caller.Org, ProjectID: c.Caller.Project, ID: id, Now: s.now()})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		found = &r
		return err
	})
	return found, err
}

// keep stores a response that has ended, before its client is told. A failure is told as store: false.
func (s *Service) keep(p *Prepared, response []byte, last *Last) bool {
	last.keep(p, response)
	if !p.Request.Store && p.Request.Conversation == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
	defer cancel()
	most := int64(MaxOrgBytes)
	if p.Request.Conversation != "" {
		most = unlimited // there was room when it began: a conversation misses no turn
	}
	err := s.write(ctx, p.Caller.Org, most, func(rows *q.Queries) (size int64, err error) {
		if p.Request.Store {
			if size, err = s.insert(ctx, rows, p, response, dialect.Text(dialect.Member(response, "status"))); err != nil {
				return 0, err
			}
		}
		more, err := s.extend(ctx, rows, p, response)
		return size + more, err
	})
	if err != nil {
		slog.Error("a response could not be stored", "request_id", ids.Format(ids.Request, p.ID), "cause", err)
	}
	return err == nil && p.Request.Store
}

func (s *Service) insert(ctx context.Context, rows *q.Queries, p *Prepared, response []byte, status string) (size int64, err error) {
	in := q.ResponseInsertParams{OrgID: p.Caller.Org, ID: p.ID, ProjectID: p.Caller.Project, CreatedAt: s.now(), ExpiresAt: s.now().Add(Retention), Status: status,
		Input: "[]", Response: string(bytes.TrimSpace(response))}
	if len(p.Request.Kept) > 0 {
		in.Input = string(p.Request.Kept)
	}
	if id := responseID(p.Request.Previous); id != ids.Nil {
		in.PreviousID = &id
	}
	if id := conversationID(p.Request.Conversation); id != ids.Nil {
		in.ConversationID = &id
	}
	if p.Request.Background {
		in.Background, in.Streamed, in.Owner = true, p.Request.Stream, &s.owner
	}
	in.Bytes = int64(len(in.Input)+len(in.Response)) + rowBytes
	return in.Bytes, rows.ResponseInsert(ctx, in)
}

// Last is what a connection remembers of its latest response, so that it can be continued without being stored. One
// goroutine. A nil Last remembers nothing.
type Last struct {
	id    string
	items [][]byte
}

func (l *Last) is(id string) bool { return l != nil && id != "" && l.id == id }

func (l *Last) keep(p *Prepared, response []byte) {
	if l == nil {
		return
	}
	l.Forget()
	if status := dialect.Text(dialect.Member(response, "status")); status != dialect.Completed && status != dialect.Incomplete {
		return
	}
	l.id = dialect.Text(dialect.Member(response, "id"))
	l.items = append(append([][]byte(nil), p.before...), p.Request.Kept, bytes.Clone(dialect.Member(response, "output")))
}

// Forget drops what is remembered: a continuation that failed must not be tried from it again.
func (l *Last) Forget() { l.id, l.items = "", nil }
