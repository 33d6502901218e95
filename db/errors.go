package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"millrace/internal/fault"
)

// SQLSTATEs that decide something here. The two-letter ones are classes.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	statementCancelled   = "57014" // by statement_timeout or by a context
	tooManyConnections   = "53300"
	operatorIntervention = "57" // shutting down, starting up, crashed
	connectionException  = "08"
)

// Retryable reports whether running the whole transaction again may succeed and cannot do its work twice: it collided
// with another, or nothing of it reached the server.
func Retryable(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code == serializationFailure || pgErr.Code == deadlockDetected
	}
	return err != nil && pgconn.SafeToRetry(err)
}

// Away reports whether err means that the database could not be reached, is starting or is going down, and not that it
// said no.
func Away(err error) bool {
	var connect *pgconn.ConnectError
	if fault.Is(err, fault.Unavailable) || errors.As(err, &connect) {
		return true
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		c := pgErr.Code
		return c == tooManyConnections || strings.HasPrefix(c, connectionException) ||
			strings.HasPrefix(c, operatorIntervention) && c != statementCancelled
	}
	var network *net.OpError
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		err != nil && pgconn.SafeToRetry(err)
}

// cancelled adds ctx's error to the server's complaint about a statement that was stopped because ctx ended.
func cancelled(ctx context.Context, err error) error {
	var pgErr *pgconn.PgError
	if ctx.Err() != nil && errors.As(err, &pgErr) && pgErr.Code == statementCancelled {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// away gives an error that says the database is away its public face; others stay as they are.
func away(err error) error {
	if Away(err) {
		return unavailable(err)
	}
	return err
}

func unavailable(cause error) error {
	return fault.New(fault.Unavailable, "The database cannot be reached right now. Try again shortly.").
		WithCode("database_unavailable").WithRetryAfter(time.Second).WithCause(cause)
}
