package control

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// none stands for no query, no body or no answer.
type none struct{}

// route is one operation. Its types are what openapi.yaml must say.
type route struct {
	method, path    string // the path as OpenAPI writes it: /orgs/{org}
	id              string // operationId
	status          int    // of success
	public          bool   // needs no token
	idempotent      bool   // takes the header Idempotency-Key
	timeout         time.Duration
	query, in, out  reflect.Type
	handle          func(c *call) (any, error)
	contentType     string // of an answer that is not JSON
	stream          bool   // the handler answers by itself, in one of export.Formats
	keyIsObligatory bool
}

// call is one request on its way.
type call struct {
	context.Context
	echo  echo.Context
	actor tenants.Actor
}

// op makes a route from a function over its query, body and answer.
func op[Q, In, Out any](method, path, id string, status int, h func(c *call, q Q, in In) (Out, error)) route {
	return route{method: method, path: path, id: id, status: status, timeout: requestTimeout,
		query: reflect.TypeFor[Q](), in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](),
		handle: func(c *call) (any, error) {
			var q Q
			var in In
			if err := readQuery(c.echo.QueryParams(), &q); err != nil {
				return nil, err
			}
			if err := readBody(c.echo.Response(), c.echo.Request(), &in); err != nil {
				return nil, err
			}
			return h(c, q, in)
		}}
}

// get is a route that reads; it needs no body.
func get[Q, Out any](path, id string, h func(c *call, q Q) (Out, error)) route {
	return op(http.MethodGet, path, id, http.StatusOK, func(c *call, q Q, _ none) (Out, error) { return h(c, q) })
}

// send is a route that changes by a body.
func send[In, Out any](method, path, id string, status int, h func(c *call, in In) (Out, error)) route {
	return op(method, path, id, status, func(c *call, _ none, in In) (Out, error) { return h(c, in) })
}

// act is a route that changes without a body.
func act[Out any](method, path, id string, status int, h func(c *call) (Out, error)) route {
	return op(method, path, id, status, func(c *call, _ none, _ none) (Out, error) { return h(c) })
}

// serve authenticates, bounds and answers one route.
func (a *api) serve(r route) echo.HandlerFunc {
	return func(ec echo.Context) (err error) {
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				panic(p) // a download broke off: so must the connection
			} else if p != nil {
				slog.ErrorContext(ec.Request().Context(), "control: a handler panicked", "operation", r.id, "panic", p, "stack", string(debug.Stack()))
				err = fmt.Errorf("panic in %s", r.id)
			}
		}()
		ctx, cancel := context.WithTimeout(ec.Request().Context(), r.timeout)
		defer cancel()
		if deadline, ok := ctx.Deadline(); ok {
			// A body that trickles in must not outlive the request. Not every ResponseWriter (a test's) can do it.
			_ = http.NewResponseController(ec.Response()).SetReadDeadline(deadline)
		}
		c := &call{Context: ctx, echo: ec}
		if !r.public {
			if c.actor, err = a.authenticate(ctx, ec); err != nil {
				return err
			}
		}
		if err := r.checkKey(ec); err != nil {
			return err
		}
		out, err := r.handle(c)
		if err != nil {
			return err
		}
		switch {
		case r.stream:
			return nil
		case r.contentType != "":
			return ec.Blob(r.status, r.contentType, out.([]byte))
		case r.out == reflect.TypeFor[none]():
			return ec.NoContent(r.status)
		}
		return ec.JSON(r.status, out)
	}
}

func (a *api) authenticate(ctx context.Context, ec echo.Context) (tenants.Actor, error) {
	scheme, bearer, _ := strings.Cut(ec.Request().Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		bearer = ""
	}
	actor, err := a.Tenants.AuthenticateControl(ctx, strings.TrimSpace(bearer))
	actor.IP, actor.RequestID = ec.RealIP(), problem.RequestID(ec.Response())
	return actor, err
}

const headerIdempotencyKey = "Idempotency-Key"

// checkKey refuses an idempotency key where it would be ignored: its sender relies on it.
func (r route) checkKey(ec echo.Context) error {
	key := ec.Request().Header.Get(headerIdempotencyKey)
	switch {
	case key != "" && !r.idempotent:
		return fault.New(fault.Invalid, "This operation takes no idempotency key.").WithParam(headerIdempotencyKey)
	case key == "" && r.keyIsObligatory:
		return fault.New(fault.Invalid, "Send an Idempotency-Key: it makes a repeated request harmless.").WithParam(headerIdempotencyKey)
	}
	return nil
}

// withKey makes a route take an Idempotency-Key.
func (r route) withKey(obligatory bool) route {
	r.idempotent, r.keyIsObligatory = true, obligatory
	return r
}

func (c *call) idempotencyKey() string { return c.echo.Request().Header.Get(headerIdempotencyKey) }

// param is a part of the path, unescaped: the router leaves it as it came when its escaping was not the usual one.
func (c *call) param(name string) string {
	value := c.echo.Param(name)
	if c.echo.Request().URL.RawPath == "" {
		return value
	}
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// id reads an id from the path. A malformed one names nothing, so it is NotFound.
func (c *call) id(name, prefix string) (ids.ID, error) {
	id, err := ids.Parse(prefix, c.param(name))
	if err != nil {
		return ids.Nil, fault.Wrap(err, fault.NotFound, "There is no %s of this id.", name)
	}
	return id, nil
}

func (c *call) org() (ids.ID, error) { return c.id("org", ids.Org) }

var pathParam = regexp.MustCompile(`\{([a-z_]+)\}`)

func echoPath(path string) string { return pathParam.ReplaceAllString(path, ":$1") }
