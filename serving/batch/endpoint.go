package batch

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/tenants/keys"
)

// Endpoint is what lines of a batch can be requests of. A new dialect is one more of these.
type Endpoint struct {
	Path string
	// Check checks a request's body as far as that needs nothing but the body, and says what every dialect asks for.
	Check func(body []byte) (Asked, error)
	// Prepare makes of it what the gate is asked.
	Prepare func(ctx context.Context, id ids.ID, caller keys.Principal, body []byte) (Prepared, error)
	// Fail is an error of a request as the body of an answer.
	Fail func(err error, id ids.ID) []byte
}

// guarded calls a dialect. What makes one panic is one request's fault: nobody else's batch ends for it.
func guarded[T any](call func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("batch: a dialect panicked", "panic", p, "stack", string(debug.Stack()))
			err = fault.Of(fmt.Errorf("batch: panic: %v", p))
		}
	}()
	return call()
}

// Asked is what a batch needs to know of a request.
type Asked struct {
	Model   string
	Stream  bool
	Service usage.Service
}

// Prepared is a request for the gate.
type Prepared struct {
	gate.Request
	Say func(err error) error // gives the gate's errors the dialect's words; nil = they have them
}

// Endpoints is the table of them.
type Endpoints []Endpoint

func (e Endpoints) find(path string) *Endpoint {
	for i := range e {
		if e[i].Path == path {
			return &e[i]
		}
	}
	return nil
}

func (e Endpoints) String() string {
	paths := make([]string, len(e))
	for i := range e {
		paths[i] = e[i].Path
	}
	return strings.Join(paths, ", ")
}
