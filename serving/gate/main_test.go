package gate_test

import (
	"log/slog"
	"os"
	"testing"
)

// TestMain keeps the log of hundreds of provoked faults out of the tests' output.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
