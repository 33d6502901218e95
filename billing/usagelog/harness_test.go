package usagelog_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

const patience = time.Minute // a bound for what should take milliseconds

// within bounds what should take milliseconds; without a deadline a call of JetStream's ends after five seconds, which a
// busy machine can take.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func startServer(t testing.TB, dir string) *bus.Server {
	t.Helper()
	s, err := bus.StartEmbedded(t.Context(), bus.EmbeddedConfig{Dir: dir, SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func connect(t testing.TB, s *bus.Server) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{Server: s, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func open(t testing.TB, b *bus.Bus, c usagelog.Config) *usagelog.Log {
	t.Helper()
	c.Bus = b
	if c.Clock == nil {
		c.Clock = clock.System
	}
	log, err := usagelog.Open(within(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = log.Close(ctx) // tests that care have closed it already
	})
	return log
}

// orgOf gives the same organization for the same number.
func orgOf(n int) ids.ID { return ids.ID{6: 0x70, 8: 0x80, 14: byte(n >> 8), 15: byte(n)} }

func event(org ids.ID) *usage.Event {
	return &usage.Event{ID: ids.New(), Org: org, Project: ids.New(), Key: ids.New(), Model: ids.New(), PriceVersion: ids.New(),
		Epoch: ids.New(), Budgets: []ids.ID{ids.New(), ids.New()}, OrgBudget: ids.New(),
		Attempts: []usage.Attempt{{ID: ids.New(), Unit: ids.New()}}, Usage: usage.Vector{usage.Input: 100, usage.Output: 200, usage.Requests: 1},
		Raw:    json.RawMessage(`{"prompt_tokens":100,"completion_tokens":200,"total_tokens":300}`),
		Charge: 123456, Ending: usage.Complete, Streamed: true, Dialect: "chat", Status: 200, StartedMS: 1764500000000, EndedMS: 1764500002000}
}
