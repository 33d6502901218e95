package openai

import (
	"net/http"
	"sync"
	"time"

	"millrace/api/inference"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants/keys"
	"millrace/tenants/limits"
)

// maxVisits is how many requests of an organization about what is kept (responses, conversations, files, batches) a gateway
// answers in a minute. Those that generate nothing take nothing of a key's limits: polling must not use them up.
const maxVisits = 6000

// visits counts them. The zero value is ready.
type visits struct {
	once    sync.Once
	limiter *limits.Limiter
}

func (v *visits) take(c clock.Clock, org ids.ID) error {
	v.once.Do(func() { v.limiter = limits.New(c) })
	lease, err := v.limiter.Take(org, limits.Limits{RPM: maxVisits}, 0)
	if err != nil {
		return fault.New(fault.Limited, "Your organization may ask for what it keeps %d times a minute at a gateway. Try again in %s.", maxVisits,
			fault.Of(err).RetryAfter.Round(time.Millisecond)).WithCode("rate_limit_exceeded").WithRetryAfter(fault.Of(err).RetryAfter)
	}
	lease.Done(0)
	return nil
}

// visit is how a request without a body begins that asks for something that is kept.
func (a *API) visit(r *http.Request) (keys.Principal, error) {
	caller, err := a.Door.Authenticate(r)
	if err != nil {
		return caller, err
	}
	return caller, a.visits.take(a.Door.Clock, caller.Org)
}

// visitWithBody is the same for one with a body, which the caller gives back.
func (a *API) visitWithBody(w http.ResponseWriter, r *http.Request) (keys.Principal, []byte, error) {
	caller, body, err := a.Door.Enter(w, r)
	if err != nil {
		return caller, body, err
	}
	if err := a.visits.take(a.Door.Clock, caller.Org); err != nil {
		inference.Give(body)
		return caller, nil, err
	}
	return caller, body, nil
}
