// Package problem turns an error into an HTTP answer: the one place where the APIs do so. It owns the envelopes, the
// headers that tell a client whether and when to retry, and the log line of what the caller must not see. It does not
// decide what went wrong: that is the fault's kind.
//
// Invariants: only a fault's public message, code and param reach the caller; every answer carries x-request-id, equal to
// the log line's; a deterministic failure never looks retryable.
package problem

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// HeaderRequestID names a request in answers and logs. Who handles a request first sets it on the answer.
const HeaderRequestID = "X-Request-Id"

// HeaderAnthropicID is where clients of Anthropic's API look for the same.
const HeaderAnthropicID = "Request-Id"

// An envelope is a dialect's way to say a fault: a body, its content type and the status. A new dialect is one more of these.
type envelope func(f *fault.Fault, requestID string) (body any, contentType string, status int)

// OpenAI answers in the envelope of OpenAI's API.
func OpenAI(w http.ResponseWriter, r *http.Request, err error) { write(w, r, err, openAI) }

// Anthropic answers in the envelope of Anthropic's API, whose clients look for request-id.
func Anthropic(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set(HeaderAnthropicID, RequestID(w))
	write(w, r, err, anthropic)
}

// JSON answers in the envelope of the control API: application/problem+json (RFC 9457) with code, detail and param.
func JSON(w http.ResponseWriter, r *http.Request, err error) { write(w, r, err, problemJSON) }

// write answers with err, unless the caller has gone.
func write(w http.ResponseWriter, r *http.Request, err error, say envelope) {
	f := Fault(err)
	id := RequestID(w)
	log(r, f, id)
	body, contentType, status := say(f, id)
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Del("Content-Length")
	h.Set("X-Content-Type-Options", "nosniff")
	switch f.Kind {
	case fault.Unauthenticated:
		h.Set("WWW-Authenticate", "Bearer")
	case fault.OutOfCredit, fault.Conflict:
		// SDKs retry 409 by themselves, and some every 4xx they do not know: a retry changes nothing here.
		h.Set("X-Should-Retry", "false")
	}
	if f.RetryAfter > 0 {
		// Whole seconds rounded up: a client that reads only Retry-After must not come too early.
		h.Set("Retry-After", strconv.FormatInt(int64((f.RetryAfter+time.Second-1)/time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(max(f.RetryAfter.Milliseconds(), 1), 10))
	}
	budget(h, f.Budget)
	w.WriteHeader(status)
	if text, err := json.Marshal(body); err == nil {
		_, _ = w.Write(append(text, '\n')) // a failed write means that the caller has gone
	}
}

// budget says what is left of the budget that refused.
func budget(h http.Header, b *fault.Budget) {
	if b == nil {
		return
	}
	h.Set("X-Budget-Scope", b.Scope)
	h.Set("X-Budget-Remaining-Usd", b.RemainingUSD)
	if b.LimitUSD != "" {
		h.Set("X-Budget-Limit-Usd", b.LimitUSD)
	}
	if !b.Reset.IsZero() {
		h.Set("X-Budget-Reset", b.Reset.UTC().Format(time.RFC3339))
	}
}

// RequestID is the answer's request id; it makes and sets one where none was set.
func RequestID(w http.ResponseWriter) string {
	if id := w.Header().Get(HeaderRequestID); id != "" {
		return id
	}
	id := ids.Format(ids.Request, ids.New())
	w.Header().Set(HeaderRequestID, id)
	return id
}

// log writes what an operator needs and a caller must not see. The query is left out: it may hold a token.
func log(r *http.Request, f *fault.Fault, id string) {
	level := slog.LevelDebug
	switch f.Kind {
	case fault.Internal:
		level = slog.LevelError
	case fault.Upstream, fault.Unavailable, fault.Timeout:
		level = slog.LevelWarn
	}
	if r.Context().Err() == context.Canceled {
		level = slog.LevelDebug // the caller has gone: whatever failed afterwards is no finding
	}
	slog.LogAttrs(r.Context(), level, "request failed", slog.String("request_id", id), slog.String("method", r.Method),
		slog.String("path", r.URL.Path), slog.String("kind", f.Kind.String()), slog.String("code", f.Code),
		slog.String("message", f.Message), slog.Any("cause", f.Cause))
}
