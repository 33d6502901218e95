package problem

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/db"
	"millrace/internal/fault"
)

// databaseRetry is when a request that found the database away may come again.
const databaseRetry = time.Second

// Fault is fault.Of for errors at the edge: it also knows the errors of the router, of body limits, of deadlines and of a database that went away mid-way.
func Fault(err error) *fault.Fault {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	var tooLarge *http.MaxBytesError
	var routed *echo.HTTPError
	switch {
	case errors.As(err, &tooLarge):
		return fault.New(fault.TooLarge, "The request body is larger than %d bytes.", tooLarge.Limit).WithCause(err)
	case errors.As(err, &routed):
		return ofStatus(routed.Code).WithCause(err)
	case db.Away(err):
		return fault.New(fault.Unavailable, "The service's database is away just now. Try again.").WithRetryAfter(databaseRetry).WithCause(err)
	case errors.Is(err, context.Canceled):
		return fault.New(fault.Unavailable, "The client has gone.").WithCause(err)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Unavailable, "The request took too long. Try again.").WithCause(err)
	}
	return fault.Of(err)
}

// ofStatus is the fault of a status that the router chose.
func ofStatus(status int) *fault.Fault {
	switch status {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "There is nothing at this path.").WithCode("unknown_path")
	case http.StatusMethodNotAllowed:
		return fault.New(fault.Method, "This path does not take this method.")
	case http.StatusUnsupportedMediaType:
		return fault.New(fault.Unsupported, "Send the body as application/json.")
	case http.StatusRequestEntityTooLarge:
		return fault.New(fault.TooLarge, "The request body is too large.")
	case http.StatusBadRequest:
		return fault.New(fault.Invalid, "The request could not be read.")
	}
	return fault.Of(errors.New(http.StatusText(status)))
}
