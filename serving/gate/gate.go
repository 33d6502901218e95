package gate

import (
	"context"
	"sync"
	"time"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/route"
	"millrace/tenants/keys"
	"millrace/tenants/limits"
)

// MaxRequest is the longest an engine may be read for a request: 256K tokens at 40 tokens a second fit. The router's
// bookings outlive it.
const MaxRequest = 110 * time.Minute

// MaxLife is the longest until a request's event is written: its last extension, write and acknowledgement come after
// MaxRequest. A gateway epoch's fence waits for it.
const MaxLife = MaxRequest + 2*time.Minute

// Times are the deadlines of a request's stages.
type Times struct {
	Connect    time.Duration // to open a connection to a unit
	Queue      time.Duration // for a place among the hand-overs under way, where engines hand prompts over
	Prefill    time.Duration // for a prefill engine to answer: its queue and its work
	Transfer   time.Duration // from then until the decode engine's first token
	Trail      time.Duration // how long a prefill leg may go on whose request has ended: its cache may be on its way
	Report     time.Duration // for a prefill engine's count, when the answer has ended before it came
	FirstToken time.Duration // from sending the request until the first token: queue and prefill of the longest prompt
	Idle       time.Duration // between two reads of a running stream
	Quiet      time.Duration // between two writes to a client whose stream has begun: then it is told that it still runs
	Write      time.Duration // for a client to take what was written
	Whole      time.Duration // the whole request
	Ack        time.Duration // how long an answer's last byte waits for the usage log
	Extend     time.Duration // to extend a hold
	Standing   time.Duration // between two looks whether a running answer's caller would still be let in
}

// DefaultTimes are used where Options.Times has zeros.
var DefaultTimes = Times{Connect: 5 * time.Second, Queue: 10 * time.Second, Prefill: 5 * time.Minute, Transfer: time.Minute, Trail: 30 * time.Second,
	Report: 2 * time.Second, FirstToken: 10 * time.Minute, Idle: 2 * time.Minute, Quiet: 15 * time.Second, Write: time.Minute,
	Whole: MaxRequest, Ack: 5 * time.Second, Extend: 2 * time.Second, Standing: 5 * time.Second}

// Models finds a model by its public name: *catalogue.Catalogue.
type Models interface {
	Model(name string) (*catalogue.Model, bool)
}

// Salter gives a tenant's prefix-cache salt: *seal.Master.
type Salter interface {
	CacheSalt(tenant string) string
}

// Standing tells whether a caller who was let in would be let in again: *keys.Authenticator. It answers from memory unless
// something was changed.
type Standing interface {
	Standing(ctx context.Context, p *keys.Principal) error
}

// Images fetches an image and gives it as a data: URL: *media.Fetcher. A fault of kind Invalid says what is wrong with it.
// The memory that it takes is counted until free is called.
type Images interface {
	Fetch(ctx context.Context, org ids.ID, url string) (image []byte, free func(), err error)
}

// Options of a gate. All but Times, Images and Standing are needed.
type Options struct {
	Clock    clock.Clock
	Models   Models
	Router   *route.Router
	Limits   *limits.Limiter
	Prices   Pricer
	Budgets  Budgets
	Log      UsageLog
	Salts    Salter
	Standing Standing // nil = nobody loses it
	Images   Images   // nil = none are fetched
	Times    Times
}

// Gate admits and serves requests. It is safe for concurrent use.
type Gate struct {
	Options

	stats stats

	mu      sync.Mutex
	running int
	trail   int           // legs that have outlived their requests, or may
	drained chan struct{} // not nil once draining; closed when nothing runs
}

// New makes a gate.
func New(o Options) *Gate {
	for _, d := range []struct{ set, normal *time.Duration }{
		{&o.Times.Connect, &DefaultTimes.Connect}, {&o.Times.FirstToken, &DefaultTimes.FirstToken}, {&o.Times.Idle, &DefaultTimes.Idle}, {&o.Times.Quiet, &DefaultTimes.Quiet},
		{&o.Times.Write, &DefaultTimes.Write}, {&o.Times.Whole, &DefaultTimes.Whole}, {&o.Times.Ack, &DefaultTimes.Ack},
		{&o.Times.Queue, &DefaultTimes.Queue}, {&o.Times.Prefill, &DefaultTimes.Prefill}, {&o.Times.Transfer, &DefaultTimes.Transfer},
		{&o.Times.Trail, &DefaultTimes.Trail}, {&o.Times.Report, &DefaultTimes.Report},
		{&o.Times.Extend, &DefaultTimes.Extend}, {&o.Times.Standing, &DefaultTimes.Standing},
	} {
		if *d.set == 0 {
			*d.set = *d.normal
		}
	}
	return &Gate{Options: o}
}

// drainRetry is when a client should try again: by then a balancer sends it elsewhere.
const drainRetry = 2 * time.Second

// enter counts a request in, unless the gate is draining.
func (g *Gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drained != nil {
		return fault.New(fault.Unavailable, "This gateway is shutting down. Try again.").WithCode("shutting_down").WithRetryAfter(drainRetry)
	}
	g.running++
	return nil
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.maybeDrained()
}

// maybeDrained tells Drain that nothing runs. The lock is held.
func (g *Gate) maybeDrained() {
	if g.running == 0 && g.trail == 0 && g.drained != nil {
		close(g.drained)
	}
}

// enterLeg and leaveLeg count what requests have begun and do not wait for: Drain does.
func (g *Gate) enterLeg() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trail++
}

func (g *Gate) leaveLeg() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trail--
	g.maybeDrained()
}

// Legs is the number of legs that run beside, or after, their requests.
func (g *Gate) Legs() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.trail
}

// Running is the number of requests that run.
func (g *Gate) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// Drain stops admitting and waits until running requests have ended, or for ctx. It may be called again.
func (g *Gate) Drain(ctx context.Context) error {
	g.mu.Lock()
	if g.drained == nil {
		g.drained = make(chan struct{})
		g.maybeDrained()
	}
	drained := g.drained
	g.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
