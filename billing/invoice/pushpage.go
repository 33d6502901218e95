package invoice

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"millrace/internal/ids"
	"millrace/tenants"
)

// Bounds of looking from pages.
const (
	pageLookEvery = 5 * time.Second // of one invoice, by this process
	maxPageLooks  = 1000            // remembered
)

// glances remembers which invoices pages looked at lately: a page that is open shows itself anew by itself.
type glances struct {
	mu   sync.Mutex
	last map[ids.ID]time.Time
}

// due reports whether it is time to look, and takes the turn.
func (g *glances) due(id ids.ID, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, known := g.last[id]; known && now.Sub(at) < pageLookEvery {
		return false
	}
	if g.last == nil || len(g.last) >= maxPageLooks {
		g.last = map[ids.ID]time.Time{}
	}
	g.last[id] = now
	return true
}

// Look is Collection as it is now at the payment provider: a customer who has just paid sees it. What is known is better than
// nothing: when the payment provider cannot be asked, the worker looks again.
func (c *Collector) Look(ctx context.Context, by tenants.Actor, org, id ids.ID) (Collection, error) {
	out, err := c.Collection(ctx, by, org, id)
	if err != nil || !c.On() || out.State != PushAsked || !c.glances.due(id, c.s.now()) {
		return out, err
	}
	if err := c.Settle(ctx, org, id); err != nil {
		slog.WarnContext(ctx, "invoice: a page could not look at the payment provider", "cause", err)
		return out, nil
	}
	return c.Collection(ctx, by, org, id)
}
