package hub

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/agents/wire"
)

// maxGateways bounds what is remembered of gateways' words.
const maxGateways = 256

// gateways are the processes that take data links, as they say on the bus.
type gateways struct {
	mu    sync.Mutex
	heard map[wire.Gateway]time.Time
	moved chan struct{} // closed and replaced when another one says so
}

func newGateways() *gateways {
	return &gateways{heard: map[wire.Gateway]time.Time{}, moved: make(chan struct{})}
}

func (h *Hub) gatewayHeard(_ string, data []byte) {
	var w wire.Gateway
	if json.Unmarshal(data, &w) != nil || w.Name == "" || !strings.HasPrefix(w.URL, "https://") {
		return
	}
	g := h.gateways
	g.mu.Lock()
	defer g.mu.Unlock()
	now := h.cfg.Clock.Now()
	for old, at := range g.heard {
		if now.Sub(at) >= wire.GatewayGone {
			delete(g.heard, old)
		}
	}
	if _, known := g.heard[w]; !known {
		if len(g.heard) >= maxGateways {
			return
		}
		close(g.moved)
		g.moved = make(chan struct{})
	}
	g.heard[w] = now
}

// list gives the gateways that take links now.
func (g *gateways) list(now time.Time) (out []wire.Gateway) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for w, at := range g.heard {
		if now.Sub(at) < wire.GatewayGone {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b wire.Gateway) int { return strings.Compare(a.Name+a.URL, b.Name+b.URL) })
	return out
}

// more is closed when there is a gateway that was not there; nil for an agent that gateways dial.
func (g *gateways) more(o *wire.Observed) <-chan struct{} {
	if o.DataURL != wire.DataByLink {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moved
}
