package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"millrace/agents/host/health"
	"millrace/agents/host/inventory"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/datafolder"
)

// How often the host is looked at. What the kernel tells is cheap; the GPUs' tools are not.
const (
	lookEvery      = 10 * time.Second
	thoroughEvery  = 6 // looks
	fileEvery      = 300 * time.Millisecond
	skewStep       = 500 * time.Millisecond // as exactly as a skew is told
	gpusName       = "gpus.json"
	clearedName    = "health-cleared"
	skewsForgotten = 2 // a skew counts when so many exchanges in a row agree
)

// eye keeps looking at the host, and knows what is to be told of it.
type eye struct {
	source inventory.Source
	every  time.Duration
	folder *datafolder.Folder
	clock  clock.Clock
	log    *slog.Logger
	// changed, capacity 1, says that there is something new to tell.
	changed chan struct{}
	first   chan struct{} // closed after the first look
	seen    sync.Once

	mu        sync.Mutex
	watch     *health.Watch
	inv       wire.Inventory
	problems  []wire.Problem
	simulated bool
	skews     []time.Duration // the last exchanges
	cleared   time.Time       // what the kernel said before it does not count
	told, gpu string          // as JSON: what was last told, and kept of the GPUs
	failing   string          // why the last look failed
}

// openEye prepares to look at this machine, or at the file's.
func openEye(cfg *Config, folder *datafolder.Folder) (*eye, error) {
	e := &eye{source: inventory.NewMachine(folder.Path()), every: lookEvery, folder: folder, clock: cfg.Clock, log: cfg.Log, changed: make(chan struct{}, 1), first: make(chan struct{})}
	if cfg.Inventory != "" {
		file, err := inventory.NewFile(cfg.Inventory)
		if err != nil {
			return nil, err
		}
		e.source, e.every, e.simulated = file, fileEvery, true
	}
	var known []wire.GPU
	text, err := os.ReadFile(folder.Path(gpusName))
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.log.Warn("the GPUs seen before are forgotten", "error", err)
	}
	e.watch = health.New(known)
	e.clear()
	return e, nil
}

// run looks again and again until ctx ends.
func (e *eye) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	if !e.simulated {
		work.Go(func() { e.followKernel(ctx) })
	}
	round := time.NewTicker(e.every)
	defer round.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
			e.look(ctx, n%thoroughEvery == 0)
		}
	}
}

func (e *eye) followKernel(ctx context.Context) {
	err := health.Follow(ctx, health.KernelLog, func(x health.Xid, at time.Time) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if at.After(e.cleared) {
			e.watch.Xid(x, at)
		}
	})
	if ctx.Err() == nil {
		e.log.Info("GPUs' errors in the kernel's log are not seen by this agent", "error", err)
	}
}

// clear forgets the kernel's messages when an operator has touched the file that says so.
func (e *eye) clear() {
	info, err := os.Stat(e.folder.Path(clearedName))
	if err == nil && info.ModTime().After(e.cleared) {
		e.cleared = info.ModTime()
		e.watch.Forget()
	}
}

// look sees once.
func (e *eye) look(ctx context.Context, thorough bool) {
	found, err := e.source.Look(ctx, thorough)
	defer e.seen.Do(func() { close(e.first) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.complain(err)
	e.clear()
	if err != nil && len(found.GPUs) == 0 { // nothing was seen, which is not the same as that nothing is there
		found.GPUs = e.watch.Known()
	}
	e.inv, e.problems = e.watch.See(found, e.skew(), e.clock.Now())
	if err != nil && !e.simulated {
		e.problems = append(e.problems, wire.Problem{Code: wire.ProblemLost, Subject: "host", Message: fmt.Sprintf("Its GPUs cannot be asked: %v", err),
			SinceMS: e.clock.Now().Truncate(time.Hour).UnixMilli()})
	}
	e.keep()
	text, err := json.Marshal([]any{e.inv, e.problems, e.skew().Round(skewStep)})
	if err != nil || string(text) == e.told {
		return
	}
	e.told = string(text)
	e.news()
}

// news says that there is something new to tell.
func (e *eye) news() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// complain says once why looks fail.
func (e *eye) complain(err error) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now != e.failing && err != nil {
		e.log.Error("the host cannot be looked at", "error", err)
	}
	e.failing = now
}

// keep stores the GPUs that were seen, so that one that vanishes is missed after a restart too.
func (e *eye) keep() {
	text, err := json.Marshal(e.watch.Known())
	if err != nil || string(text) == e.gpu {
		return
	}
	if err := datafolder.WriteFile(e.folder.Path(gpusName), text, secretMode); err != nil {
		e.log.Warn("the GPUs cannot be noted", "error", err)
		return
	}
	e.gpu = string(text)
}

// skewed takes one exchange with the control side: by how much its clock is behind this one.
func (e *eye) skewed(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.skews = append(e.skews, by)
	e.skews = e.skews[max(0, len(e.skews)-skewsForgotten):]
}

// skew is the smallest of the last exchanges: an answer that was long on its way proves nothing.
func (e *eye) skew() time.Duration {
	if len(e.skews) < skewsForgotten {
		return 0
	}
	least := e.skews[0]
	for _, s := range e.skews {
		if s.Abs() < least.Abs() {
			least = s
		}
	}
	return least
}

// tell fills in what is known of the host.
func (e *eye) tell(o *wire.Observed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o.Inventory, o.Problems, o.Simulated = e.inv, e.problems, o.Simulated || e.simulated
	o.ClockSkewMS = e.skew().Round(skewStep).Milliseconds()
}

// device is the number by which the tools know a GPU now. A host that tells of no GPUs says nothing about numbers.
func (e *eye) device(index int) (int, error) {
	<-e.first // at most lookLimit after the start
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.watch.Known()) == 0 {
		return index, nil
	}
	number, ok := e.watch.Device(index)
	if !ok {
		return 0, fmt.Errorf("GPU %d of this host is not there", index)
	}
	return number, nil
}
