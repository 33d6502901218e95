package host

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/internal/datafolder"
	"millrace/serving/engine"
)

const (
	desiredName = "desired.json"
	syncTimeout = wire.SyncWait + 10*time.Second
	syncPause   = 100 * time.Millisecond // between reports of what is observed
)

// desired is what the hub last said, kept on disk: engines run on while the hub is away, and come back before it does.
type desired struct {
	mu         sync.Mutex
	generation int64
	units      []wire.Desired
}

// load reads the file and reports whether there is a word of the hub in it.
func (d *desired) load(path string, log *slog.Logger) bool {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	var kept wire.SyncResponse
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		log.Warn("the stored desired state is of no use", "error", err)
		return false
	}
	d.generation, d.units = kept.Generation, kept.Desired
	return true
}

func (d *desired) now() (generation int64, simulated bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, u := range d.units {
		simulated = simulated || u.Engine == string(engine.Sim)
	}
	return d.generation, simulated
}

// sync tells what is observed and takes what is desired, for as long as the link works. The call is held by the hub until
// something is desired anew; what happens here meanwhile ends it, so that it is told.
func (a *agent) sync(ctx context.Context, client *http.Client) error {
	var updates sync.WaitGroup
	defer updates.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for first := true; ; first = false {
		generation, simulated := a.desired.now()
		in := wire.SyncRequest{Generation: generation, Observed: a.observe(simulated), Wait: !first}
		if first {
			in.Generation = -1 // whatever was kept, the hub's word is taken anew
		}
		answer, err := a.ask(ctx, client, in)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errChanged):
		case err != nil:
			return err
		default:
			a.heed(answer)
			a.follow(ctx, client, answer.Update, updates.Go)
			if answer.Generation != generation || first {
				if err := a.apply(answer); err != nil {
					return err
				}
			}
		}
		select { // reports are bounded
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(syncPause):
		}
	}
}

var errChanged = errors.New("something to tell")

// ask makes one sync. errChanged when there is something new to tell before the answer.
func (a *agent) ask(ctx context.Context, client *http.Client, in wire.SyncRequest) (wire.SyncResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	type result struct {
		answer wire.SyncResponse
		err    error
	}
	done := make(chan result, 1)
	go func() { // ends with the call, which ends with ctx; both ways out below wait for it
		var r result
		r.err = call(ctx, client, linkURL+wire.PathSync, in, &r.answer)
		done <- r
	}()
	changed, seen := a.engines.Changed(), a.eye.changed
	if !in.Wait {
		changed, seen = nil, nil // answered at once anyway
	}
	select {
	case r := <-done:
		return r.answer, r.err
	case <-changed:
	case <-seen:
	}
	cancel()
	if r := <-done; r.err == nil {
		return r.answer, nil
	}
	return wire.SyncResponse{}, errChanged
}

// heed takes what an answer says beside what is desired.
func (a *agent) heed(answer wire.SyncResponse) {
	if answer.NowMS > 0 {
		a.eye.skewed(a.cfg.Clock.Now().Sub(time.UnixMilli(answer.NowMS)))
	}
	a.links.named(answer.Peers)
	a.linkGateways(answer.Gateways)
	if a.cfg.Program != nil {
		a.cfg.Program.Confirm()
	}
}

// apply keeps what is desired on disk first, then makes it so.
func (a *agent) apply(answer wire.SyncResponse) error {
	text, err := json.Marshal(wire.SyncResponse{Generation: answer.Generation, Desired: answer.Desired})
	if err != nil {
		return err
	}
	if err := datafolder.WriteFile(a.folder.Path(desiredName), text, secretMode); err != nil {
		return err
	}
	a.desired.mu.Lock()
	a.desired.generation, a.desired.units = answer.Generation, answer.Desired
	a.desired.mu.Unlock()
	a.engines.Apply(answer.Desired)
	return nil
}

func (a *agent) observe(simulated bool) wire.Observed {
	o := wire.Observed{AgentVersion: a.cfg.Version, DataURL: a.dataURL, Simulated: simulated, Units: a.engines.Observed(),
		JournalDropped: a.journal.Dropped(), Channel: a.cfg.Channel, Platform: platform}
	if a.cfg.Program != nil {
		o.UpdateError = a.cfg.Program.Trouble()
	}
	a.eye.tell(&o)
	a.links.tell(&o)
	return o
}
