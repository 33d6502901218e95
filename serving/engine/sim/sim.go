// Package sim is the simulated engine: a server that behaves as vLLM does on the wire and in time, or as SGLang,
// TensorRT-LLM or OpenAI do on the wire when it is given their personality, without a model. It has a continuous-batching clock with a cost model, a paged prefix cache with cache salts, KV events, usage, metrics, tool
// calls, reasoning, prefill/decode parameters and faults on demand.
//
// It owns what an engine would own and knows nothing of Millrace around it. It says that it is simulated wherever a person
// or a program can see it: a header and a fingerprint on every answer, and the text itself. Invariants: usage counts
// exactly the tokens that were generated and the prefix that was found; equal requests get equal answers; a client that
// leaves frees its slot and blocks at once; no block is ever lost or held twice by the free list.
package sim

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"millrace/internal/clock"
	"millrace/serving/engine/kvevent"
)

// Config is the engine's flags. A zero takes the default, but for Speed, where it means as fast as possible.
type Config struct {
	Port           int     `help:"HTTP port on 127.0.0.1." default:"8000"`
	Personality    string  `help:"How it speaks on the wire: as vllm, sglang, trtllm or openai." enum:"vllm,sglang,trtllm,openai" default:"vllm"`
	Model          string  `help:"Name of the model it serves; the name with -think reasons first." default:"sim"`
	Context        int     `help:"Tokens of prompt and answer together." default:"131072"`
	Slots          int     `help:"Most requests computed at once." default:"256"`
	BatchTokens    int     `help:"Most tokens computed in a step: longer prompts are computed in chunks." default:"8192"`
	Queue          int     `help:"Most requests waiting; more are refused with 503." default:"65536"`
	Blocks         int     `help:"Blocks of the KV cache; 0 = enough for two whole contexts." default:"0"`
	BlockSize      int     `help:"Tokens per block." default:"16"`
	Speed          float64 `help:"Simulated seconds per second; 0 = as fast as possible." default:"1"`
	Seed           uint64  `help:"Changes the answers and the engine's own block hashes." default:"0"`
	KVEndpoint     string  `name:"kv-endpoint" help:"Where KV events go: dialled, or bound on loopback when its host is * or it is ipc://. Empty = none."`
	ReplayEndpoint string  `help:"Where replay requests are answered. Empty = none."`
	KVTopic        string  `name:"kv-topic" help:"Topic of KV events." default:"kv-events"`
	KVArrays       bool    `name:"kv-arrays" help:"Send KV events as positional arrays, as engines before 2026 did."`
	Faults         bool    `help:"Allow faults to be set at POST /sim/faults and answers to be prescribed."`
	Cost           Cost    `embed:"" prefix:"cost-"`
}

// Defaults of Config, the same as its tags give.
const (
	DefaultContext     = 131072
	DefaultSlots       = 256
	DefaultBatchTokens = 8192
	DefaultQueue       = 65536
	DefaultBlockSize   = 16
)

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Context, DefaultContext)
	def(&c.Slots, DefaultSlots)
	def(&c.BatchTokens, DefaultBatchTokens)
	def(&c.Queue, DefaultQueue)
	def(&c.BlockSize, DefaultBlockSize)
	if c.Personality == "" {
		c.Personality = "vllm"
	}
	if c.Model == "" {
		c.Model = "sim"
	}
	if c.KVTopic == "" {
		c.KVTopic = "kv-events"
	}
	if c.Cost == (Cost{}) {
		c.Cost = DefaultCost
	}
	def(&c.Blocks, 2*(c.Context+c.BlockSize-1)/c.BlockSize)
	return c
}

func (c Config) check() error {
	switch {
	case c.Context < 2 || c.Slots < 1 || c.BatchTokens < 1 || c.Queue < 1 || c.BlockSize < 1 || c.Blocks < 1:
		return fmt.Errorf("sim: context, slots, batch tokens, queue, blocks and block size must be positive: %+v", c)
	case c.Speed < 0:
		return fmt.Errorf("sim: speed %v is negative", c.Speed)
	case c.Blocks*c.BlockSize < c.Context+c.BlockSize:
		return fmt.Errorf("sim: %d blocks of %d tokens cannot hold a context of %d", c.Blocks, c.BlockSize, c.Context)
	}
	return nil
}

// Engine is a simulated engine. Run must be running for it to answer.
type Engine struct {
	cfg     Config
	context int
	clock   clock.Clock
	sched   *scheduler
	voice   voice
	pub     *kvevent.Publisher // nil without KV events
	polled  polledEvents       // for engines whose KV events are polled
	id      string             // vLLM's engine id
	stats   stats
	faults  faultBox
	exit    func(code int) // what a crash does

	idPrefix string // of request ids
	idLast   atomic.Uint64
}

// Option changes what the flags do not.
type Option func(*Engine)

// WithClock replaces the system's clock for time stamps. Waiting is done with the runtime's timers.
func WithClock(c clock.Clock) Option { return func(e *Engine) { e.clock = c } }

// New makes an engine and binds its KV sockets.
func New(cfg Config, options ...Option) (*Engine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	v, err := voiceOf(cfg.Personality)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, context: cfg.Context, clock: clock.System, exit: os.Exit, id: uuid.NewString(), voice: v}
	for _, o := range options {
		o(e)
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	e.idPrefix = hex.EncodeToString(random[8:12])
	// An engine's hash seed differs from process to process, so nobody can rely on its hashes.
	seed := cfg.Seed ^ binary.LittleEndian.Uint64(random[:8])
	e.sched = &scheduler{
		slots: cfg.Slots, budget: cfg.BatchTokens, queue: cfg.Queue, speed: cfg.Speed, cost: cfg.Cost, now: e.clock.Now,
		stats: &e.stats, kick: make(chan struct{}, 1),
		cache: newCache(cfg.Blocks, cfg.BlockSize, seed, cfg.KVEndpoint != "" || v.traits().polled),
	}
	if v.traits().polled {
		e.polled.add([]kvevent.Event{{Kind: kvevent.Cleared}}) // the cache is new
		e.sched.emit = e.polled.add
		return e, nil
	}
	if cfg.KVEndpoint == "" {
		return e, nil
	}
	shape := v.traits().shape
	if cfg.KVArrays {
		shape = kvevent.Positional
	}
	e.pub, err = kvevent.NewPublisher(kvevent.PublisherConfig{
		Endpoint: cfg.KVEndpoint, Replay: cfg.ReplayEndpoint, Topic: cfg.KVTopic, Shape: shape,
	}, e.clock)
	if err != nil {
		return nil, err
	}
	e.sched.emit = func(events []kvevent.Event) { _ = e.pub.Publish(events) } // our own events always encode
	return e, nil
}

// KVEndpoints are the addresses of events and replay when they are bound here; "" otherwise.
func (e *Engine) KVEndpoints() (events, replay string) {
	if e.pub == nil {
		return "", ""
	}
	return e.pub.Endpoints()
}

// Run computes, and publishes KV events, until ctx ends. What is unfinished then ends without an answer.
func (e *Engine) Run(ctx context.Context) error {
	var tasks sync.WaitGroup
	tasks.Go(func() { e.sched.run(ctx) })
	if e.pub != nil {
		tasks.Go(func() { _ = e.pub.Run(ctx) }) // its error is ctx's
	}
	tasks.Wait()
	return ctx.Err()
}

// Times of Serve.
const (
	drainTime     = 10 * time.Second // for running answers when it is told to stop
	headerTimeout = 10 * time.Second
)

// Serve runs the engine and its HTTP server on ln until ctx ends, then lets running answers finish for a while.
func (e *Engine) Serve(ctx context.Context, ln net.Listener) error {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = e.Run(run) }) // its error is run's
	defer tasks.Wait()
	defer stop()
	srv := &http.Server{Handler: e.Handler(), ReadHeaderTimeout: headerTimeout}
	failed := make(chan error, 1)
	tasks.Go(func() { failed <- srv.Serve(ln) })
	select {
	case err := <-failed:
		return fmt.Errorf("sim: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(run, drainTime)
	defer cancel()
	if err := srv.Shutdown(last); err != nil {
		return errors.Join(fmt.Errorf("sim: stopped with answers unfinished: %w", err), srv.Close())
	}
	return nil
}

// newID makes a request's id: unique in this process and, by its prefix, among processes.
func (e *Engine) newID() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], e.idLast.Add(1))
	return e.idPrefix + hex.EncodeToString(b[4:])
}
