package report

import (
	"net/url"

	"github.com/labstack/echo/v4"
)

// Address is a page's own URL: the state of its filters.
type Address struct {
	path string
	q    url.Values
}

// AddressOf is the request's address without what must not be kept in a link.
func AddressOf(c echo.Context) Address {
	q := url.Values{}
	for k, v := range c.QueryParams() {
		if k != "done" && k != "format" && k != "after" && len(v) > 0 && v[0] != "" {
			q.Set(k, v[0])
		}
	}
	return Address{c.Request().URL.Path, q}
}

// With is the address with some parameters changed, in pairs of name and value; an empty value removes one.
func (a Address) With(pairs ...string) string {
	q := url.Values{}
	for k, v := range a.q {
		q[k] = v
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		} else {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return a.path
	}
	return a.path + "?" + q.Encode()
}
