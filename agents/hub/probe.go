package hub

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/db/bus"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
)

// Times of probing. A provider's list of models is asked for less often: it is not ours to load.
const (
	proveTimeout   = time.Minute // for the one token at the beginning
	aliveTimeout   = 2 * time.Second
	aliveEvery     = time.Second
	providerEvery  = 10 * time.Second
	proveFirstWait = time.Second
	proveLastWait  = 30 * time.Second
	failuresToDrop = 2 // questions in a row without an answer
)

// prober watches engines that have no agent, and tells of them as a host would. Several hubs may probe one engine: they
// say the same.
type prober struct {
	hub     *Hub
	running map[ids.ID]*probing
	work    sync.WaitGroup
}

type probing struct {
	unit *catalogue.Unit
	stop context.CancelFunc
}

// run follows the list of attached units.
func (p *prober) run(ctx context.Context) {
	round := time.NewTicker(aliveEvery)
	defer round.Stop()
	defer p.work.Wait()
	for {
		p.follow(ctx)
		select {
		case <-ctx.Done():
			return
		case <-round.C:
		}
	}
}

func (p *prober) follow(ctx context.Context) {
	now := map[ids.ID]bool{}
	for _, u := range p.hub.cfg.Attached() {
		now[u.ID] = true
		if old := p.running[u.ID]; old != nil {
			if old.unit == u {
				continue
			}
			old.stop() // another address, key or model
		}
		one, stop := context.WithCancel(ctx)
		p.running[u.ID] = &probing{u, stop}
		p.work.Go(func() { p.watch(one, u) })
	}
	for id, old := range p.running {
		if !now[id] {
			old.stop()
			delete(p.running, id)
		}
	}
}

// watch proves an engine once by a token, then asks cheaply whether it is there.
func (p *prober) watch(ctx context.Context, u *catalogue.Unit) {
	client := u.Client()
	for pause := proveFirstWait; ; pause = min(2*pause, proveLastWait) {
		proving, cancel := context.WithTimeout(ctx, proveTimeout)
		err := u.Driver.Ready(proving, client, u.Base, u.UpstreamModel)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		p.tell(u, wire.StateStarting, engine.Load{})
		p.hub.cfg.Log.Warn("an attached engine gives no token", "unit", u.Name, "error", err)
		if !sleep(ctx, pause) {
			return
		}
	}
	every := aliveEvery
	if u.Driver.Family() == engine.OpenAI {
		every = providerEvery
	}
	p.stay(ctx, u, client, every)
}

// stay tells of a proved engine. Between questions its state is repeated, so that it is never taken for stale.
func (p *prober) stay(ctx context.Context, u *catalogue.Unit, client *http.Client, every time.Duration) {
	var load engine.Load
	failures, asked := 0, time.Time{}
	for {
		if now := p.hub.cfg.Clock.Now(); now.Sub(asked) >= every {
			asked = now
			if err := alive(ctx, client, u); err == nil {
				failures = 0
			} else if failures++; failures == failuresToDrop {
				p.hub.cfg.Log.Warn("an attached engine does not answer", "unit", u.Name, "error", err)
			}
			if failures == 0 {
				load = p.load(ctx, u, client, load)
			}
		}
		if ctx.Err() != nil {
			return
		}
		state := wire.StateReady
		if failures >= failuresToDrop {
			state = wire.StateStarting
		}
		p.tell(u, state, load)
		if !sleep(ctx, aliveEvery) {
			return
		}
	}
}

func (p *prober) load(ctx context.Context, u *catalogue.Unit, client *http.Client, last engine.Load) engine.Load {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	load, err := u.Driver.Load(ctx, client, u.Base)
	if err != nil {
		return last // a moment's view: an old one is better than none
	}
	return load
}

// tell publishes as a host's hub would. The engine's incarnation is the unit: nobody sees it restart.
func (p *prober) tell(u *catalogue.Unit, state string, l engine.Load) {
	p.hub.fleet.publish(bus.FleetLoad, wire.Fact{Load: &wire.Load{Unit: u.ID, Engine: u.ID, State: state,
		Running: l.Running, Waiting: l.Waiting, QueuedTokens: l.QueuedTokens, KVUsage: l.KVUsage,
		CacheQueries: l.PrefixQueries, CacheHits: l.PrefixHits, AtMS: p.hub.cfg.Clock.Now().UnixMilli()}})
}

var errNotAlive = errors.New("hub: the engine answers with a server error")

// alive asks whether the server is there. A provider may not list its models: any answer but a server error will do.
func alive(ctx context.Context, client *http.Client, u *catalogue.Unit) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Base+u.Driver.Alive(), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, lineBuffer))
	if resp.StatusCode >= http.StatusInternalServerError {
		return errNotAlive
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
