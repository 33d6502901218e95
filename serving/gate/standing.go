package gate

import (
	"context"
	"net/http"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/route"
)

// thrownOut says that a caller lost its standing in the middle of an answer.
type thrownOut struct{ why *fault.Fault }

func (e *thrownOut) Error() string { return "gate: the caller was thrown out: " + e.why.Message }

// standing ends answers of keys that were revoked and of organizations that were suspended: what a leaked key has begun must
// not go on at its owner's cost. While nothing can be known, the answer goes on.
func (r *relay) standing() error {
	g := r.t.gate
	switch {
	case g.Standing == nil || r.now.Sub(r.stoodAt) < g.Times.Standing && !r.stoodAt.IsZero():
		return nil
	case r.stoodAt.IsZero(): // it was let in just now
		r.stoodAt = r.now
		return nil
	}
	r.stoodAt = r.now
	ctx, cancel := context.WithTimeout(r.ctx, g.Times.Extend)
	defer cancel()
	err := g.Standing.Standing(ctx, &r.t.req.Caller)
	if fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden) {
		return &thrownOut{fault.Of(err)}
	}
	return nil
}

// thrownOut ends an answer whose caller lost its standing. What was delivered is paid; a whole answer was not.
func (r *relay) thrownOut(why *fault.Fault) error {
	if !r.committed {
		r.end(usage.FailedUnbilled, why.Kind.Status(), count{}, route.Cancelled)
		return why
	}
	if n := len(r.t.attempts); n > 0 {
		r.t.attempts[n-1].Note = why.Kind.String()
	}
	c := r.delivered(false)
	ack := r.end(usage.ClientLeft, http.StatusOK, c, route.Cancelled)
	if r.write(r.answer.Fail(r.out[:0], r.t.req.Dialect.Frame(why))) == nil {
		r.last(ack, r.answer.End)
	}
	return nil
}
