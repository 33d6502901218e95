package assembly

import (
	"testing"
	"time"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/serving/fleet"
)

// A drain must not end by what was told before it began, or by a hub that hears nothing any more.
func TestOnlyAFreshLoadIsKnown(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		state string
		age   time.Duration
		known bool
	}{
		"fresh":           {wire.StateReady, time.Second, true},
		"draining":        {wire.StateDraining, time.Second, true},
		"old":             {wire.StateReady, fleet.DefaultLimits.Settle, false},
		"its host is out": {wire.StateUnknown, 0, false},
	} {
		n, known := running(hub.LiveUnit{Load: wire.Load{State: c.state, Running: 2, Waiting: 1}, Heard: now.Add(-c.age)}, now)
		if n != 3 || known != c.known {
			t.Errorf("%s: %d, %v", name, n, known)
		}
	}
}
