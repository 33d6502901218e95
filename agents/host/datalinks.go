package host

import (
	"context"
	"errors"
	"strings"
	"sync"

	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/internal/pki"
)

const (
	dataLinks   = 2  // to each gateway: one that breaks, or is full, does not stop all
	maxGateways = 64 // that this host dials
)

// gateways keeps data links to the gateways that the hub names, when nobody can dial this host.
type gateways struct {
	work sync.WaitGroup

	mu      sync.Mutex
	ctx     context.Context // of all links; nil before the agent runs
	running map[wire.Gateway]context.CancelFunc
}

// linkGateways makes links to exactly those gateways.
func (a *agent) linkGateways(now []wire.Gateway) {
	g := &a.gateways
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.dataURL != wire.DataByLink || g.ctx == nil || g.ctx.Err() != nil {
		return
	}
	wanted := map[wire.Gateway]bool{}
	for _, w := range now[:min(len(now), maxGateways)] {
		wanted[w] = true
		if g.running[w] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(g.ctx)
		g.running[w] = cancel
		for range dataLinks {
			g.work.Go(func() { a.stayLinkedTo(ctx, w) })
		}
	}
	for w, cancel := range g.running {
		if !wanted[w] {
			cancel()
			delete(g.running, w)
		}
	}
}

// stayLinkedTo keeps one data link, dialling again after every break.
func (a *agent) stayLinkedTo(ctx context.Context, to wire.Gateway) {
	pause := newBackoff()
	for ctx.Err() == nil {
		began := a.cfg.Clock.Now()
		err := a.linkedTo(ctx, to)
		if a.cfg.Clock.Now().Sub(began) > steadyLink {
			pause = newBackoff()
		}
		if ctx.Err() == nil {
			a.log.Debug("no data link to a gateway", "gateway", to.Name, "error", err)
		}
		_ = pause.wait(ctx) // ends with ctx, which the loop looks at
	}
}

// linkedTo is the life of one data link: to the very gateway that the hub named, which asks for what engines do.
func (a *agent) linkedTo(ctx context.Context, to wire.Gateway) error {
	url := "wss" + strings.TrimPrefix(to.URL, "https") + wire.PathData
	l, err := link.Dial(ctx, url, a.self.trust.Dial(a.self.source, pki.Gateway(to.Name)), a.proxy, a.relay, a.log)
	if err != nil {
		return err
	}
	defer l.Close()
	select {
	case <-ctx.Done():
	case <-l.Done():
	}
	return errors.New("the link broke")
}
