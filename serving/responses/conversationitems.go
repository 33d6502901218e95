package responses

import (
	"context"
	"errors"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/tenants/keys"
)

// AddItems adds items, an array, to a conversation, and gives them as they are kept.
func (s *Service) AddItems(ctx context.Context, by keys.Principal, id string, items []byte) (List, error) {
	if err := s.take(by); err != nil {
		return List{}, err
	}
	kept, err := s.newItems(by, items)
	if err != nil {
		return List{}, err
	}
	found := false
	err = s.write(ctx, by.Org, MaxOrgBytes, func(rows *q.Queries) (more int64, err error) {
		more, found, err = s.append(ctx, rows, by, conversationID(id), kept)
		return more, err
	})
	if err == nil && !found {
		err = noConversation(id)
	}
	return List{Items: kept}, err
}

// Items lists a conversation.
func (s *Service) Items(ctx context.Context, by keys.Principal, id string, p Page) (list List, err error) {
	if _, err := s.GetConversation(ctx, by, id); err != nil {
		return List{}, err
	}
	if !isText(p.After) {
		return List{}, noItem("after", p.After)
	}
	conversation := conversationID(id)
	err = s.read(ctx, by.Org, func(rows *q.Queries) error {
		list = List{}
		from := int64(math.MaxInt64)
		if p.Ascending {
			from = 0
		}
		if p.After != "" {
			at, err := rows.ConversationItemPosition(ctx, q.ConversationItemPositionParams{OrgID: by.Org, ConversationID: conversation, ItemID: p.After})
			if errors.Is(err, pgx.ErrNoRows) {
				return noItem("after", p.After)
			}
			if err != nil {
				return err
			}
			from = at.Position
		}
		limit := int32(p.limit() + 1)
		if p.Ascending {
			found, err := rows.ConversationItemsAfter(ctx, q.ConversationItemsAfterParams{OrgID: by.Org, ConversationID: conversation, After: from, MaxRows: limit})
			for _, f := range found {
				list.Items = append(list.Items, []byte(f.Item))
			}
			return err
		}
		found, err := rows.ConversationItemsBefore(ctx, q.ConversationItemsBeforeParams{OrgID: by.Org, ConversationID: conversation, Before: from, MaxRows: limit})
		for _, f := range found {
			list.Items = append(list.Items, []byte(f.Item))
		}
		return err
	})
	if n := p.limit(); len(list.Items) > n {
		list.Items, list.More = list.Items[:n], true
	}
	return list, err
}

// Item finds one item of a conversation.
func (s *Service) Item(ctx context.Context, by keys.Principal, id, item string) (found []byte, err error) {
	if _, err := s.GetConversation(ctx, by, id); err != nil {
		return nil, err
	}
	if !isText(item) {
		return nil, noItem("item_id", item)
	}
	err = s.read(ctx, by.Org, func(rows *q.Queries) error {
		row, err := rows.ConversationItemPosition(ctx, q.ConversationItemPositionParams{OrgID: by.Org, ConversationID: conversationID(id), ItemID: item})
		if errors.Is(err, pgx.ErrNoRows) {
			return noItem("item_id", item)
		}
		found = []byte(row.Item)
		return err
	})
	return found, err
}

// isText reports whether the database can be asked for an id: it knows no others.
func isText(id string) bool { return utf8.ValidString(id) && !strings.Contains(id, "\x00") }

// DeleteItem deletes one item and gives the conversation.
func (s *Service) DeleteItem(ctx context.Context, by keys.Principal, id, item string) (Conversation, error) {
	c, err := s.GetConversation(ctx, by, id)
	if err != nil {
		return c, err
	}
	if !isText(item) {
		return c, noItem("item_id", item)
	}
	err = s.write(ctx, by.Org, unlimited, func(rows *q.Queries) (int64, error) {
		bytes, err := rows.ConversationItemDelete(ctx, q.ConversationItemDeleteParams{OrgID: by.Org, ConversationID: conversationID(id), ItemID: item, RowBytes: rowBytes})
		if errors.Is(err, pgx.ErrNoRows) {
			err = noItem("item_id", item)
		}
		return -bytes, err
	})
	return c, err
}
