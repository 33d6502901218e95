package sim

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"millrace/serving/engine/kvevent"
)

// rank is one data-parallel rank: a batch and a cache of its own, and where its KV events go.
type rank struct {
	n     int
	sched *scheduler
	pub   *kvevent.Publisher // nil without KV events
}

// rankHeaders choose a rank, vLLM's and SGLang's; a value that is no number is passed over.
var rankHeaders = [...]string{"X-Data-Parallel-Rank", "X-Override-Routed-Dp-Rank"}

// anyRank leaves the choice to the engine.
const anyRank = -1

// newRank makes one, with its sockets.
func (e *Engine) newRank(n int, seed uint64) (*rank, error) {
	cfg := &e.cfg
	polled := e.voice.traits().polled
	r := &rank{n: n}
	r.sched = &scheduler{
		slots: cfg.Slots, budget: cfg.BatchTokens, queue: cfg.Queue, speed: cfg.Speed, cost: cfg.Cost, now: e.clock.Now,
		stats: &e.stats, kick: make(chan struct{}, 1),
		offers: offers{byKey: map[string]*offer{}, lease: cfg.Lease},
		cache:  newCache(cfg.Blocks, cfg.BlockSize, seed, cfg.KVEndpoint != "" || polled),
	}
	if polled {
		r.sched.emit = func(events []kvevent.Event) { e.polled.add(n, events) }
		r.sched.emit([]kvevent.Event{{Kind: kvevent.Cleared}}) // the cache is new
		return r, nil
	}
	if cfg.KVEndpoint == "" {
		return r, nil
	}
	shape := e.voice.traits().shape
	if cfg.KVArrays {
		shape = kvevent.Positional
	}
	var err error
	r.pub, err = kvevent.NewPublisher(kvevent.PublisherConfig{
		Endpoint: offset(cfg.KVEndpoint, n), Replay: offset(cfg.ReplayEndpoint, n), Topic: cfg.KVTopic, Shape: shape, Rank: n,
	}, e.clock)
	if err != nil {
		return nil, err
	}
	r.sched.emit = func(events []kvevent.Event) { _ = r.pub.Publish(events) } // our own events always encode
	return r, nil
}

// offset is rank n's endpoint: each has its number added to the port, as at vLLM and SGLang.
func offset(endpoint string, n int) string {
	colon := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[colon+1:])
	if err != nil || n == 0 || port == 0 {
		return endpoint
	}
	return endpoint[:colon+1] + strconv.Itoa(port+n)
}

// run computes and publishes until ctx ends.
func (r *rank) run(ctx context.Context, tasks *sync.WaitGroup) {
	tasks.Go(func() { r.sched.run(ctx) })
	if r.pub != nil {
		tasks.Go(func() { _ = r.pub.Run(ctx) }) // its error is ctx's
	}
}

// active are the ranks that take requests.
func (e *Engine) active() []*rank { return e.ranks[:e.ops.active()] }

// rankFor is the one that a request asks for, else the one with the least to do.
func (e *Engine) rankFor(q *request) *rank {
	all := e.active()
	if q.offer != nil {
		return all[0]
	}
	if q.dataRank >= 0 && q.dataRank < len(all) {
		return all[q.dataRank]
	}
	return slices.MinFunc(all, func(a, b *rank) int { return a.sched.waiters() - b.sched.waiters() })
}

// waiters is how many requests a rank has.
func (q *scheduler) waiters() int {
	running, waiting, _, _ := q.load()
	return running + waiting
}

// load adds the ranks up; usage is their mean.
func (e *Engine) load() (running, waiting int, queued int64, usage float64) {
	all := e.active()
	for _, r := range all {
		run, wait, tokens, u := r.sched.load()
		running, waiting, queued, usage = running+run, waiting+wait, queued+tokens, usage+u/float64(len(all))
	}
	return running, waiting, queued, usage
}

// wantsRank reads the headers.
func wantsRank(r *http.Request) int {
	for _, name := range rankHeaders {
		if n, err := strconv.Atoi(r.Header.Get(name)); err == nil && n >= 0 {
			return n
		}
	}
	return anyRank
}
