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
)

// Config is the engine's flags. A zero takes the default, but for Speed, where it means as fast as possible.
type Config struct {
	Port           int     `help:"HTTP port on 127.0.0.1." default:"8000"`
	Personality    string  `help:"How it speaks on the wire: as vllm, sglang, trtllm, openai, or as the engine behind DeepInfer's adapter." enum:"vllm,sglang,trtllm,openai,deepinfer" default:"vllm"`
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
	Ranks          int     `help:"Data-parallel ranks, each with a batch and a cache of its own; KV events at the ports that follow." default:"1"`
	Elastic        int     `help:"Most ranks that it can be resized to while it runs; 0 = its size is fixed." default:"0"`
	ExpertSize     int     `help:"The EP size that it says it has." default:"0" hidden:""`
	AnyModel       bool    `help:"Take requests for any model's name." hidden:""`
	Faults         bool    `help:"Allow faults to be set at POST /sim/faults and answers to be prescribed."`
	RoleSwitch     bool    `help:"Its role can be switched while nothing runs, as SGLang's."`
	Role           string  `help:"Its part in a unit: whole, prefill, decode or encoder." enum:"whole,prefill,decode,encoder" default:"whole"`

	TransferAddress string        `help:"host:port where peers fetch caches; empty = the HTTP port."`
	TransferEngine  string        `help:"The id that it has for its peers; empty = it makes one up."`
	Lease           time.Duration `help:"How long a prompt's cache is kept for a peer." default:"30s"`
	PeerWait        time.Duration `help:"How long a leg waits for its peer." default:"300s"`
	Cost            Cost          `embed:"" prefix:"cost-"`
}

// Defaults of Config, the same as its tags give.
const (
	DefaultContext     = 131072
	DefaultSlots       = 256
	DefaultBatchTokens = 8192
	DefaultQueue       = 65536
	DefaultBlockSize   = 16
	DefaultLease       = 30 * time.Second
	DefaultPeerWait    = 300 * time.Second
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
	def(&c.Ranks, 1)
	if c.Personality == "" {
		c.Personality = "vllm"
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.PeerWait == 0 {
		c.PeerWait = DefaultPeerWait
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

// maxRanks bounds data parallelism.
const maxRanks = 512

func (c Config) check() error {
	switch {
	case c.Context < 2 || c.Slots < 1 || c.BatchTokens < 1 || c.Queue < 1 || c.BlockSize < 1 || c.Blocks < 1:
		return fmt.Errorf("sim: context, slots, batch tokens, queue, blocks and block size must be positive: %+v", c)
	case c.Ranks < 1 || max(c.Ranks, c.Elastic) > maxRanks:
		return fmt.Errorf("sim: 1 to %d ranks, not %d, elastic to %d", maxRanks, c.Ranks, c.Elastic)
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
	sched   *scheduler // rank 0's, where hand-overs are
	ranks   []*rank    // as many as it may be resized to; the first ops.ranks are in use
	ops     operated
	voice   voice
	polled  polledEvents // for engines whose KV events are polled
	id      string       // vLLM's engine id
	stats   stats
	faults  faultBox
	exit    func(code int) // what a crash does
	dead    atomic.Bool    // the scheduler has crashed; the HTTP server goes on
	why     atomic.Pointer[string]
	peers   *http.Client

	roomsMu sync.Mutex
	rooms   map[string]bool // of SGLang's that a decode engine is in

	background sync.WaitGroup // resizes; they end with the engine's requests

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
	e := &Engine{cfg: cfg, context: cfg.Context, clock: clock.System, exit: os.Exit, id: cfg.TransferEngine, voice: v,
		rooms: map[string]bool{}, peers: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if e.id == "" {
		e.id = uuid.NewString()
	}
	for _, o := range options {
		o(e)
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	e.idPrefix = hex.EncodeToString(random[8:12])
	// An engine's hash seed differs from process to process, so nobody can rely on its hashes.
	seed := cfg.Seed ^ binary.LittleEndian.Uint64(random[:8])
	e.ops.ranks = cfg.Ranks
	for n := range max(cfg.Ranks, cfg.Elastic) {
		r, err := e.newRank(n, seed+uint64(n))
		if err != nil {
			return nil, err
		}
		e.ranks = append(e.ranks, r)
	}
	e.sched = e.ranks[0].sched
	return e, nil
}

// KVEndpoints are the addresses of rank 0's events and replay when they are bound here; "" otherwise.
func (e *Engine) KVEndpoints() (events, replay string) {
	if e.ranks[0].pub == nil {
		return "", ""
	}
	return e.ranks[0].pub.Endpoints()
}

// Run computes, and publishes KV events, until ctx ends. What is unfinished then ends without an answer.
func (e *Engine) Run(ctx context.Context) error {
	var tasks sync.WaitGroup
	for _, r := range e.ranks {
		r.run(ctx, &tasks)
	}
	tasks.Wait()
	e.background.Wait()
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
	if err := e.serveSideChannel(run, &tasks); err != nil {
		return err
	}
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
