package limits

import (
	"net/http"
	"strconv"
	"time"

	"millrace/internal/clock"
)

// Lease is an admitted request's share of its key's limits. The zero Lease is of a key without limits.
type Lease struct {
	shard    *shard
	state    *state
	clock    clock.Clock
	limits   Limits
	reserved int64

	requestsLeft, tokensLeft   int64
	requestsReset, tokensReset time.Duration
}

// Reserve takes tokens for a request that was admitted before it was known how many it needs, or fails as Take does.
func (l *Lease) Reserve(tokens int64) error {
	if l.shard == nil || l.limits.TPM <= 0 {
		return nil
	}
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	now := l.clock.Now()
	more := max(min(tokens, l.limits.TPM, maxReserving)-l.reserved, 0)
	spent, wait := advance(l.state.tokens, now, more, l.limits.TPM)
	if wait > 0 {
		return limited("tokens", l.limits.TPM, wait)
	}
	l.state.tokens = spent
	l.reserved += more
	l.tokensLeft, l.tokensReset = level(spent, now, l.limits.TPM)
	return nil
}

// Cancel gives everything back, as if the request had never been: a later step refused it.
func (l *Lease) Cancel() { l.end(1, -l.reserved) }

// Done ends the request, which used so many tokens.
func (l *Lease) Done(tokens int64) {
	l.end(0, min(max(tokens, 0), maxReserving)-l.reserved)
}

func (l *Lease) end(requests, tokens int64) {
	if l.shard == nil {
		return
	}
	sh := l.shard
	l.shard = nil
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l.state.running--
	if l.limits.RPM > 0 {
		l.state.requests = l.state.requests.Add(-cost(requests, l.limits.RPM))
	}
	if l.limits.TPM > 0 && tokens != 0 {
		full := l.state.tokens
		if now := l.clock.Now(); tokens > 0 && full.Before(now) {
			full = now
		}
		l.state.tokens = full.Add(cost(tokens, l.limits.TPM))
	}
}

// Headers sets the x-ratelimit headers of OpenAI's API, for the limits that the key has.
func (l *Lease) Headers(h http.Header) {
	set := func(kind string, limit, left int64, reset time.Duration) {
		if limit > 0 {
			h["X-Ratelimit-Limit-"+kind] = []string{strconv.FormatInt(limit, 10)}
			h["X-Ratelimit-Remaining-"+kind] = []string{strconv.FormatInt(left, 10)}
			h["X-Ratelimit-Reset-"+kind] = []string{reset.Round(time.Millisecond).String()}
		}
	}
	set("Requests", l.limits.RPM, l.requestsLeft, l.requestsReset)
	set("Tokens", l.limits.TPM, l.tokensLeft, l.tokensReset)
}
