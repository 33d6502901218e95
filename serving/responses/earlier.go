package responses

import (
	"context"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/protocol"
	dialect "millrace/serving/protocol/responses"
)

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
