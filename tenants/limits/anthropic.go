package limits

import (
	"net/http"
	"strconv"
	"time"
)

// AnthropicHeaders sets the anthropic-ratelimit headers of Anthropic's API, for the limits that the key has. Tokens of
// prompts and answers have one limit here.
func (l *Lease) AnthropicHeaders(h http.Header) {
	set := func(kind string, limit, left int64, reset time.Duration) {
		if limit > 0 {
			h["Anthropic-Ratelimit-"+kind+"-Limit"] = []string{strconv.FormatInt(limit, 10)}
			h["Anthropic-Ratelimit-"+kind+"-Remaining"] = []string{strconv.FormatInt(left, 10)}
			h["Anthropic-Ratelimit-"+kind+"-Reset"] = []string{l.clock.Now().Add(reset + time.Second - 1).UTC().Format(time.RFC3339)} // never too early
		}
	}
	set("Requests", l.limits.RPM, l.requestsLeft, l.requestsReset)
	set("Tokens", l.limits.TPM, l.tokensLeft, l.tokensReset)
}
