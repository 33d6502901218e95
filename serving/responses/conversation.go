package responses

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	dialect "millrace/serving/protocol/responses"
	"millrace/tenants/keys"
	"millrace/tenants/limits"
)

// Conversation is a conversation without its items.
type Conversation struct {
	ID       string
	Created  time.Time
	Metadata []byte // a JSON object
}

const conversationPrefix = "conv"

func conversationID(text string) ids.ID {
	id, err := ids.Parse(conversationPrefix, text)
	if err != nil {
		return ids.Nil
	}
	return id
}

func noConversation(id string) error {
	return fault.New(fault.NotFound, "Conversation with id %q not found.", shown(id)).WithCode("conversation_not_found").WithParam("conversation")
}

// MaxNewItems is how many items one request may add.
const MaxNewItems = 20

// CreateConversation makes a conversation with its first items, an array or nil.
func (s *Service) CreateConversation(ctx context.Context, by keys.Principal, metadata, items []byte) (Conversation, error) {
	if err := s.take(by); err != nil {
		return Conversation{}, err
	}
	id, now := ids.New(), s.now()
	if metadata == nil {
		metadata = []byte("{}")
	}
	kept, err := s.newItems(by, items)
	if err != nil {
		return Conversation{}, err
	}
	own := int64(len(metadata)) + rowBytes
	err = s.write(ctx, by.Org, MaxOrgBytes, func(rows *q.Queries) (int64, error) {
		err := rows.ConversationInsert(ctx, q.ConversationInsertParams{OrgID: by.Org, ID: id, ProjectID: by.Project, CreatedAt: now, ExpiresAt: now.Add(Retention),
			Metadata: string(metadata), Bytes: own})
		if err != nil || len(kept) == 0 {
			return own, err
		}
		more, _, err := s.append(ctx, rows, by, id, kept)
		return own + more, err
	})
	return Conversation{ID: ids.Format(conversationPrefix, id), Created: now, Metadata: metadata}, err
}

// take takes one request from the key's limits: what is kept without a model costs nothing else.
func (s *Service) take(by keys.Principal) error {
	lease, err := s.o.Gate.Limits.Take(by.Key, limits.Limits{RPM: by.RPM, TPM: by.TPM, Concurrency: by.Concurrency}, 0)
	if err == nil {
		lease.Done(0)
	}
	return err
}

// newItems checks items that a client adds.
func (s *Service) newItems(by keys.Principal, items []byte) ([][]byte, error) {
	if items == nil {
		return nil, nil
	}
	id := ids.New()
	call := Call{Caller: by}
	kept, err := dialect.KeepItems(items, hex.EncodeToString(id[:]), &dialect.Context{Seal: s.seal(&call)})
	if err != nil {
		return nil, err
	}
	list := dialect.Elements(kept)
	if len(list) > MaxNewItems {
		return nil, fault.New(fault.Invalid, "At most %d items can be added at once.", MaxNewItems).WithParam("items")
	}
	return list, nil
}

// GetConversation finds a conversation.
func (s *Service) GetConversation(ctx context.Context, by keys.Principal, id string) (c Conversation, err error) {
	err = s.read(ctx, by.Org, func(rows *q.Queries) error {
		row, err := rows.ConversationByID(ctx, q.ConversationByIDParams{OrgID: by.Org, ProjectID: by.Project, ID: conversationID(id), Now: s.now()})
		if errors.Is(err, pgx.ErrNoRows) {
			return noConversation(id)
		}
		c = Conversation{ID: ids.Format(conversationPrefix, row.ID), Created: row.CreatedAt, Metadata: []byte(row.Metadata)}
		return err
	})
	return c, err
}

// UpdateConversation replaces the metadata.
func (s *Service) UpdateConversation(ctx context.Context, by keys.Principal, id string, metadata []byte) (Conversation, error) {
	err := s.write(ctx, by.Org, unlimited, func(rows *q.Queries) (int64, error) { // its size stays what it was counted as: metadata are small
		n, err := rows.ConversationUpdate(ctx, q.ConversationUpdateParams{OrgID: by.Org, ProjectID: by.Project, ID: conversationID(id), Metadata: string(metadata),
			ExpiresAt: s.now().Add(Retention), Now: s.now()})
		if err == nil && n == 0 {
			err = noConversation(id)
		}
		return 0, err
	})
	if err != nil {
		return Conversation{}, err
	}
	return s.GetConversation(ctx, by, id)
}

// DeleteConversation deletes a conversation with its items.
func (s *Service) DeleteConversation(ctx context.Context, by keys.Principal, id string) error {
	return s.write(ctx, by.Org, unlimited, func(rows *q.Queries) (int64, error) {
		bytes, err := rows.ConversationDelete(ctx, q.ConversationDeleteParams{OrgID: by.Org, ProjectID: by.Project, ID: conversationID(id)})
		if errors.Is(err, pgx.ErrNoRows) {
			err = noConversation(id)
		}
		return -bytes, err
	})
}

// conversationItems is what a request in a conversation continues from.
func (s *Service) conversationItems(ctx context.Context, c *Call) ([][]byte, error) {
	id := c.Request.Conversation
	if _, err := s.GetConversation(ctx, c.Caller, id); err != nil {
		return nil, err
	}
	var items []q.ConversationItemsRow
	err := s.read(ctx, c.Caller.Org, func(rows *q.Queries) (err error) {
		items, err = rows.ConversationItems(ctx, q.ConversationItemsParams{OrgID: c.Caller.Org, ConversationID: conversationID(id), MaxRows: maxKeptItems + 1, MaxBytes: maxEarlierBytes})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(items) > maxKeptItems:
		return nil, fault.New(fault.Invalid, "The conversation has more than %d items: begin another one.", maxKeptItems).WithParam("conversation")
	case len(items) == 0:
		return nil, nil
	case items[len(items)-1].Bytes > maxEarlierBytes:
		return nil, earlierTooLarge()
	}
	list := []byte{'['}
	for i, item := range items {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, item.Item...)
	}
	return [][]byte{append(list, ']')}, nil
}

// extend adds what a response was asked and what it said to its conversation. One that was deleted meanwhile stays deleted.
func (s *Service) extend(ctx context.Context, rows *q.Queries, p *Prepared, response []byte) (more int64, err error) {
	if p.Request.Conversation == "" {
		return 0, nil
	}
	items := append(dialect.Elements(p.Request.Kept), dialect.Elements(dialect.Member(response, "output"))...)
	more, _, err = s.append(ctx, rows, p.Caller, conversationID(p.Request.Conversation), items)
	return more, err
}

// append adds items; false when there is no such conversation. more is how many bytes they are.
func (s *Service) append(ctx context.Context, rows *q.Queries, by keys.Principal, id ids.ID, items [][]byte) (more int64, found bool, err error) {
	in := q.ConversationItemsInsertParams{OrgID: by.Org, ConversationID: id, RowBytes: rowBytes}
	seen := map[string]bool{}
	for _, item := range items {
		name := dialect.Text(dialect.Member(item, "id"))
		if seen[name] {
			continue
		}
		seen[name] = true
		in.ItemIds, in.Items = append(in.ItemIds, name), append(in.Items, string(item))
	}
	n := int64(len(in.Items))
	last, err := rows.ConversationExtend(ctx, q.ConversationExtendParams{OrgID: by.Org, ProjectID: by.Project, ID: id, Items: n, ExpiresAt: s.now().Add(Retention), Now: s.now()})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case last > maxKeptItems:
		return 0, true, fault.New(fault.Invalid, "A conversation holds at most %d items: begin another one.", maxKeptItems).WithParam("conversation")
	}
	for i := range n {
		in.Positions = append(in.Positions, last-n+1+i)
	}
	more, err = rows.ConversationItemsInsert(ctx, in)
	return more, true, err
}
