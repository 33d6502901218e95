package responses

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	dialect "millrace/serving/protocol/responses"
	"millrace/tenants/keys"
)

// Get gives a kept response object.
func (s *Service) Get(ctx context.Context, by keys.Principal, id string) ([]byte, error) {
	row, err := s.row(ctx, &Call{Caller: by}, responseID(id))
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, notFound(id)
	}
	return []byte(row.Response), nil
}

// Delete deletes a response. One that is being made is not made further.
func (s *Service) Delete(ctx context.Context, by keys.Principal, id string) error {
	err := s.write(ctx, by.Org, unlimited, func(rows *q.Queries) (int64, error) {
		bytes, err := rows.ResponseDelete(ctx, q.ResponseDeleteParams{OrgID: by.Org, ProjectID: by.Project, ID: responseID(id)})
		if errors.Is(err, pgx.ErrNoRows) {
			err = notFound(id)
		}
		return -bytes, err
	})
	if err == nil {
		s.stop(responseID(id))
	}
	return err
}

// Page is which part of a list a client wants.
type Page struct {
	After     string // the id of the item that it begins after; "" = at the begin
	Limit     int    // 0 = the usual 20
	Ascending bool
}

// Limits of pages.
const (
	usualPage = 20
	MaxPage   = 100
)

func (p *Page) limit() int {
	if p.Limit == 0 {
		return usualPage
	}
	return p.Limit
}

// List is a page of items.
type List struct {
	Items [][]byte
	More  bool
}

// InputItems lists the input of a response.
func (s *Service) InputItems(ctx context.Context, by keys.Principal, id string, p Page) (List, error) {
	row, err := s.row(ctx, &Call{Caller: by}, responseID(id))
	if err != nil {
		return List{}, err
	}
	if row == nil {
		return List{}, notFound(id)
	}
	items := dialect.Elements([]byte(row.Input))
	if !p.Ascending {
		slices.Reverse(items)
	}
	if p.After != "" {
		at := slices.IndexFunc(items, func(item []byte) bool { return dialect.Text(dialect.Member(item, "id")) == p.After })
		if at < 0 {
			return List{}, noItem("after", p.After)
		}
		items = items[at+1:]
	}
	n := min(p.limit(), len(items))
	return List{Items: items[:n], More: n < len(items)}, nil
}

func noItem(param, id string) error {
	return fault.New(fault.NotFound, "Item with id %q not found.", shown(id)).WithCode("item_not_found").WithParam(param)
}

// Cancel ends a response in the background. One that has ended stays as it is.
func (s *Service) Cancel(ctx context.Context, by keys.Principal, id string) ([]byte, error) {
	row, err := s.row(ctx, &Call{Caller: by}, responseID(id))
	switch {
	case err != nil:
		return nil, err
	case row == nil:
		return nil, notFound(id)
	case !row.Background:
		return nil, fault.New(fault.Invalid, "Only responses in the background can be cancelled: end the connection of others.").WithParam("response_id")
	case ended(row.Status):
		return []byte(row.Response), nil
	}
	object := dialect.WithStatus([]byte(row.Response), dialect.Cancelled, nil)
	first, err := s.finish(ctx, by.Org, row.ID, dialect.Cancelled, object)
	if err != nil {
		return nil, err
	}
	s.stop(row.ID)
	if !first { // it ended meanwhile
		return s.Get(ctx, by, id)
	}
	return object, nil
}

// finish ends a response that has not ended; false when it had.
func (s *Service) finish(ctx context.Context, org, id ids.ID, status string, object []byte) (first bool, err error) {
	err = s.write(ctx, org, unlimited, func(rows *q.Queries) (more int64, err error) {
		more, first, err = update(ctx, rows, org, id, status, object)
		return more, err
	})
	return first, err
}

// update changes a response that has not ended; false when it had.
func update(ctx context.Context, rows *q.Queries, org, id ids.ID, status string, object []byte) (more int64, changed bool, err error) {
	more, err = rows.ResponseUpdate(ctx, q.ResponseUpdateParams{OrgID: org, ID: id, Status: status, Response: string(object)})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return more, err == nil, err
}
