package webtest

import (
	"context"
	"log/slog"
	"testing"
)

// failing is a log that fails the test on an error: no page of the fixture may fail by itself.
type failing struct {
	t testing.TB
	slog.Handler
}

// Enabled takes errors.
func (f failing) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

// Handle fails the test.
func (f failing) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	f.t.Error("logged: " + text)
	return nil
}
