package stripegw

import (
	"errors"
	"net/http"

	"github.com/stripe/stripe-go/v76"

	"millrace/billing/topup"
	"millrace/internal/fault"
)

// translate makes Stripe's error a fault. Its text is for the log; people read ours.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var e *stripe.Error
	if !errors.As(err, &e) {
		return fault.Wrap(err, fault.Unavailable, "The payment provider cannot be reached. Try again in a moment.")
	}
	cause := errors.New("stripe: " + string(e.Type) + " " + string(e.Code) + " " + e.Param + " (request " + e.RequestID + "): " + e.Msg)
	switch {
	case e.HTTPStatusCode == http.StatusTooManyRequests:
		return fault.Wrap(cause, fault.Limited, "The payment provider is busy. Try again in a moment.")
	case e.Code == stripe.ErrorCodeResourceMissing, e.HTTPStatusCode == http.StatusNotFound: // 404 for an id in the path, 400 for one given as a parameter
		return fault.Wrap(cause, fault.NotFound, "The payment provider does not know this.")
	case e.HTTPStatusCode == http.StatusUnauthorized, e.HTTPStatusCode == http.StatusForbidden:
		return fault.Wrap(cause, fault.Upstream, "The payment provider refuses our key. Please tell support.")
	case e.Type == stripe.ErrorTypeIdempotency: // asked before in other words: what became of that is not told here
		return fault.Wrap(cause, fault.Unavailable, "The payment provider was asked for this before, otherwise. Try again later.")
	case e.HTTPStatusCode >= http.StatusInternalServerError, e.HTTPStatusCode == http.StatusConflict, e.HTTPStatusCode == 0:
		return fault.Wrap(cause, fault.Unavailable, "The payment provider cannot be reached. Try again in a moment.")
	}
	return fault.New(fault.Upstream, "The payment provider refused the request. Please tell support.").WithCode(topup.CodeRefused).WithCause(cause)
}
