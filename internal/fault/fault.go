// Package fault is Millrace's one error type: a kind that decides the HTTP status, a message the caller may see, and a
// cause that only the log sees. Any error that is not a *Fault is Internal: its text never reaches a caller.
//
// Handlers return errors; api/problem and web render them, each in one place.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what sort of failure happened, independent of any protocol.
type Kind uint8

// The kinds, with the HTTP status each becomes.
const (
	Internal        Kind = iota // 500: our mistake; the public message is generic
	Invalid                     // 400: the request is wrong; Param names the field
	Unauthenticated             // 401: no valid key or session
	OutOfCredit                 // 402: balance or a cap is used up; not worth retrying
	Forbidden                   // 403: known caller, not allowed
	NotFound                    // 404
	Method                      // 405: the path exists, the method does not
	Conflict                    // 409: state changed, or a name is taken
	TooLarge                    // 413: a body above its limit
	Unsupported                 // 415: wrong content type
	Limited                     // 429: a rate limit; RetryAfter says when
	Upstream                    // 502: the engine answered wrongly
	Unavailable                 // 503: not now; RetryAfter says when
	Timeout                     // 504: the engine did not answer in time
)

var kinds = [...]struct {
	name   string
	status int
}{
	Internal: {"internal", 500}, Invalid: {"invalid", 400}, Unauthenticated: {"unauthenticated", 401},
	OutOfCredit: {"out_of_credit", 402}, Forbidden: {"forbidden", 403}, NotFound: {"not_found", 404},
	Method: {"method_not_allowed", 405}, Conflict: {"conflict", 409}, TooLarge: {"too_large", 413},
	Unsupported: {"unsupported_media_type", 415}, Limited: {"limited", 429}, Upstream: {"upstream", 502},
	Unavailable: {"unavailable", 503}, Timeout: {"timeout", 504},
}

// String is the kind's stable name, used in logs, metrics and JSON problems.
func (k Kind) String() string { return kinds[k].name }

// Status is the HTTP status of the kind.
func (k Kind) Status() int { return kinds[k].status }

// Fault is an error with a public face.
type Fault struct {
	Kind       Kind
	Message    string        // shown to the caller: says what to do, never an internal detail
	Code       string        // machine-readable reason, for example "model_not_found"; may be empty
	Param      string        // the request field at fault; may be empty
	RetryAfter time.Duration // for Limited and Unavailable; 0 = not said
	Budget     *Budget       // for OutOfCredit: which one refused; nil = not said
	Cause      error         // for the log only
}

// Error is the log's view: public message and cause.
func (f *Fault) Error() string {
	if f.Cause == nil {
		return f.Kind.String() + ": " + f.Message
	}
	return f.Kind.String() + ": " + f.Message + ": " + f.Cause.Error()
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// New makes a fault with a formatted public message.
func New(kind Kind, format string, args ...any) *Fault {
	return &Fault{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Wrap makes a fault with a cause for the log and a public message. A nil cause gives nil.
func Wrap(cause error, kind Kind, format string, args ...any) error {
	if cause == nil {
		return nil
	}
	f := New(kind, format, args...)
	f.Cause = cause
	return f
}

// CodeSentenceChanged marks the refusal of a consent to another sentence than the one that holds now.
const CodeSentenceChanged = "sentence_changed"

// WithCode sets the machine-readable reason.
func (f *Fault) WithCode(code string) *Fault { f.Code = code; return f }

// WithParam names the request field at fault.
func (f *Fault) WithParam(param string) *Fault { f.Param = param; return f }

// WithRetryAfter says when a retry may succeed.
func (f *Fault) WithRetryAfter(d time.Duration) *Fault { f.RetryAfter = d; return f }

// WithCause keeps the cause for the log.
func (f *Fault) WithCause(err error) *Fault { f.Cause = err; return f }

// Of returns the fault in err's chain, or an Internal fault around err. Of(nil) is nil.
func Of(err error) *Fault {
	if err == nil {
		return nil
	}
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Kind: Internal, Message: "Something went wrong on our side. The error has been logged.", Cause: err}
}

// Is reports whether err carries a fault of this kind.
func Is(err error, kind Kind) bool {
	var f *Fault
	return errors.As(err, &f) && f.Kind == kind
}
