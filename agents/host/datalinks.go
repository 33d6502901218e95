package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/internal/pki"
)

const (
	dataLinks   = 2  // to each gateway: one that breaks, or is full, does not stop all
	maxGateways = 64 // that this host dials
	// gatewayKept is how long a gateway that is named no more is dialled on: a hub that has just started knows none yet, and
	// requests run on these links.
	gatewayKept = 2 * time.Minute
)

// gateways keeps data links to the gateways that the hub names, when nobody can dial this host.
type gateways struct {
	work sync.WaitGroup

	mu      sync.Mutex
	ctx     context.Context // of all links; nil before the agent runs
	running map[wire.Gateway]*dialled
}

// dialled is one gateway that this host dials.
type dialled struct {
	cancel context.CancelFunc
	named  time.Time // last, by a hub
}

// linkGateways makes links to those gateways, and ends those to gateways that nobody has named for a while.
func (a *agent) linkGateways(now []wire.Gateway) {
	g := &a.gateways
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.dataURL != wire.DataByLink || g.ctx == nil || g.ctx.Err() != nil {
		return
	}
	at := a.cfg.Clock.Now()
	for w, d := range g.running {
		if !slices.Contains(now, w) && at.Sub(d.named) >= gatewayKept {
			d.cancel()
			delete(g.running, w)
		}
	}
	for _, w := range now[:min(len(now), maxGateways)] {
		if d := g.running[w]; d != nil {
			d.named = at
			continue
		}
		if len(g.running) >= maxGateways {
			return
		}
		ctx, cancel := context.WithCancel(g.ctx)
		g.running[w] = &dialled{cancel, at}
		for range dataLinks {
			g.work.Go(func() { a.stayLinkedTo(ctx, w) })
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
