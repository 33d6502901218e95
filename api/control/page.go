package control

import (
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Page is a part of a list. Next is the cursor of the following part; empty at the end.
type Page[T any] struct {
	Data []T    `json:"data"`
	Next string `json:"next,omitempty"`
}

// PageQuery asks for a part of a list.
type PageQuery struct {
	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

// bounds gives the id to go on after and the size of the page.
func (q PageQuery) bounds(prefix string) (before ids.ID, limit int, err error) {
	limit = int(tenants.Page(q.Limit))
	if q.Limit < 0 || q.Limit > tenants.MaxPage {
		return ids.Nil, 0, fault.New(fault.Invalid, "The limit is between 1 and %d.", tenants.MaxPage).WithParam("limit")
	}
	if q.Cursor == "" {
		return ids.Nil, limit, nil
	}
	if before, err = ids.Parse(prefix, q.Cursor); err != nil {
		return ids.Nil, 0, fault.New(fault.Invalid, "Give the cursor as next said it.").WithParam("cursor")
	}
	return before, limit, nil
}

// pageOf converts rows to a page. A full page has a next one, which may turn out empty.
func pageOf[R, T any](rows []R, limit int, convert func(R) T, cursor func(R) string) Page[T] {
	p := Page[T]{Data: make([]T, len(rows))}
	for i, r := range rows {
		p.Data[i] = convert(r)
	}
	if len(rows) == limit {
		p.Next = cursor(rows[len(rows)-1])
	}
	return p
}

// all is a list that has one page.
func all[R, T any](rows []R, convert func(R) T) Page[T] {
	return pageOf(rows, -1, convert, nil)
}

// Amount is money: exact dollars for reading and for languages without 64-bit integers, and the integer.
type Amount struct {
	USD  string `json:"usd"`
	Nano int64  `json:"nano"`
}

func amount(n money.Nano) Amount { return Amount{USD: n.String(), Nano: int64(n)} }

// parseUSD reads a decimal amount of a request.
func parseUSD(param, s string) (money.Nano, error) {
	n, err := money.ParseUSD(s)
	if err != nil {
		return 0, fault.New(fault.Invalid, "Give %s in USD with at most nine decimals, for example \"12.50\".", param).WithParam(param).WithCause(err)
	}
	return n, nil
}

// parseRef reads an id from a body or query; empty is ids.Nil.
func parseRef(param, prefix, s string) (ids.ID, error) {
	if s == "" {
		return ids.Nil, nil
	}
	id, err := ids.Parse(prefix, s)
	if err != nil {
		return ids.Nil, fault.New(fault.Invalid, "%s must be an id such as %s_….", param, prefix).WithParam(param).WithCause(err)
	}
	return id, nil
}

// format writes an id, or nothing for ids.Nil.
func format(prefix string, id ids.ID) string {
	if id == ids.Nil {
		return ""
	}
	return ids.Format(prefix, id)
}
