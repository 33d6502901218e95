package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/cmd/millrace/trial"
)

// The gateways of a run.
const (
	crashGatewaysAtOnce = 3
	crashRound          = 25 // kills between two comparisons
	crashEngines        = 2
	gatewayLife         = 500 * time.Millisecond  // longest, once it serves
	gatewayLongLife     = 1500 * time.Millisecond // more, for one in longEvery
	gatewayReadyLimit   = time.Minute
)

// fastEngine generates thousands of tokens a second, so that progress is written within a gateway's short life.
var fastEngine = []string{"--cost-b0", "200000", "--cost-b1", "5000"}

// crashGateways kills gateways, and nothing else.
func crashGateways(ctx context.Context, r *crashRun) (err error) {
	k, err := trial.StartCluster(ctx, trial.ClusterConfig{Binary: r.cfg.Binary, Dir: r.dir, Log: r.log, Engines: crashEngines, EngineArgs: fastEngine})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatewayReadyLimit)
		defer cancel()
		err = errors.Join(err, k.Stop(stop))
	}()
	r.load = &crashLoad{book: r.book, key: k.Shop.APIKey, model: k.Shop.ModelName}
	for r.killed < r.kills && len(r.wrong) == 0 {
		n := min(crashRound, r.kills-r.killed)
		if err := r.killRound(ctx, k, n); err != nil {
			return err
		}
		r.killed += n
		if err := awaitFence(ctx, k.DB, 0); err != nil {
			return err
		}
		if err := r.check(ctx, k.DB, k.Bus); err != nil {
			return fmt.Errorf("after kill %d: %w", r.killed, err)
		}
	}
	return nil
}

// killRound kills n gateways under load; none lives at its end.
func (r *crashRun) killRound(ctx context.Context, k *trial.Cluster, n int) error {
	lives := make(chan time.Duration, n)
	for i := range n {
		life := r.moment(gatewayLife)
		if i%longEvery == 0 {
			life += gatewayLongLife
		}
		lives <- life
	}
	close(lives)
	line := gatewayLine{load: r.load}
	r.load.start(r.cfg.Seed + uint64(r.killed))
	var wg sync.WaitGroup
	errs := make([]error, crashGatewaysAtOnce)
	for i := range errs {
		wg.Go(func() {
			for life := range lives {
				if errs[i] = line.live(ctx, k, life); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	r.load.pause()
	return errors.Join(errs...)
}

// gatewayLine is the gateways that serve now.
type gatewayLine struct {
	load *crashLoad
	mu   sync.Mutex
	urls []string
}

// startTries is how often a gateway may give up starting: on a machine that is loaded far beyond its means, a database or a
// log that takes seconds to answer looks like one that is away.
const startTries = 3

// live is one gateway's life, from its start to its kill.
func (l *gatewayLine) live(ctx context.Context, k *trial.Cluster, life time.Duration) error {
	g, err := l.begin(ctx, k)
	for try := 1; errors.Is(err, trial.ErrEnded) && try < startTries; try++ {
		g, err = l.begin(ctx, k)
	}
	if err != nil {
		return err
	}
	l.change(g.URL, true)
	slept := wait(ctx, life)
	killed := g.Kill()
	l.change(g.URL, false)
	return errors.Join(slept, killed)
}

func (l *gatewayLine) begin(ctx context.Context, k *trial.Cluster) (*trial.Gateway, error) {
	ctx, cancel := context.WithTimeout(ctx, gatewayReadyLimit)
	defer cancel()
	return k.StartGateway(ctx)
}

func (l *gatewayLine) change(url string, serves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	urls := make([]string, 0, crashGatewaysAtOnce)
	for _, u := range l.urls {
		if u != url {
			urls = append(urls, u)
		}
	}
	if serves {
		urls = append(urls, url)
	}
	l.urls = urls
	l.load.aim(urls...)
}
