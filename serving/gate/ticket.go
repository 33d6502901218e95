package gate

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/protocol"
	"millrace/serving/route"
	"millrace/tenants/keys"
	"millrace/tenants/limits"
)

// Dialect is what the pipeline needs of a client's API.
type Dialect struct {
	Name   string // in usage events
	Prefix string // of an answer's id
	Answer func(stream bool, p protocol.AnswerParams) protocol.Answer
	Frame  func(err error) []byte // an error inside a stream that has begun
}

// Request is what a client asks for.
type Request struct {
	ID      ids.ID // of the request; made at its start
	Caller  keys.Principal
	Chat    *protocol.ChatRequest
	Dialect *Dialect
	// Batch says that this is a line of a batch: it is priced at the batch tier where the price offers it, queues behind
	// others where an engine ranks, does not count in the key's limits, and costs nothing when it is called off.
	Batch bool
	Early *Early // what was taken for it before; nil = nothing was
}

// Ticket is an admitted request: its hold is taken, its price pinned and its unit booked. Only Admit makes one. Serve must
// be called exactly once.
type Ticket struct {
	gate  *Gate
	req   Request
	start time.Time
	model *catalogue.Model
	lease limits.Lease
	quote usage.Quote
	rank  usage.Service // the tier whose place in engines' queues it takes
	hold  Hold
	held  money.Nano

	salt     string
	affinity uint64
	bound    int64 // prompt tokens at most
	prompt   int64 // tokens, counted or estimated, for routing
	hashes   []uint64
	approx   bool
	block    int
	excluded []ids.ID
	promptBy int    // place of the attempt whose count the prompt is billed by, from 1; 0 = the one that answered
	resumed  []byte // the body for the rest of an answer that an engine broke off; nil = none did
	replayed int64  // tokens of it that were delivered before

	booking  *route.Booking
	body     body
	attempts []usage.Attempt
	meter    meter
	scratch  *scratch

	fetching sync.Mutex
	fetched  []func() // give the memory of fetched images back
}

// body is a prepared upstream body and what it was prepared for.
type body struct {
	text    []byte
	driver  engine.Driver
	model   string
	attempt ids.ID
}

// Limits that concern money.
const (
	// sliceTokens is how many output tokens are held at a time: enough that extending costs nothing that shows, little
	// enough that a long max_tokens does not lock up a balance.
	sliceTokens = 4096
	// extendAhead is how many tokens before the end of what is held the hold is extended.
	extendAhead = sliceTokens / 2
)

// Admit takes a request in, or says why not; then nothing is held and nothing was recorded. The order is that of cost:
// what needs no money comes first.
func (g *Gate) Admit(ctx context.Context, req Request) (*Ticket, error) {
	if err := g.enter(); err != nil {
		req.Early.End()
		return nil, err
	}
	t := &Ticket{gate: g, req: req, start: g.Clock.Now(), scratch: scratches.Get().(*scratch)}
	t.body.text, t.meter.kept = t.scratch.body, t.scratch.kept
	admitted := false
	defer func() { // after a panic, too: nothing stays held for a request that nobody serves
		if !admitted {
			t.turnAway()
		}
	}()
	if err := t.admit(ctx); err != nil {
		return nil, err
	}
	admitted = true
	return t, nil
}

// turnAway gives back what a request took that is not let in.
func (t *Ticket) turnAway() {
	if t.req.Early != nil {
		t.lease.Done(0) // as Early.End
	} else {
		t.lease.Cancel()
	}
	if t.hold != nil {
		t.hold.Settle(0)
	}
	t.release()
	t.gate.leave()
}

func (t *Ticket) admit(ctx context.Context) (err error) {
	g, c, chat := t.gate, &t.req.Caller, t.req.Chat
	switch {
	case t.req.Batch:
		chat.Service = usage.Batch
	case t.req.Early != nil:
		t.lease = t.req.Early.lease
		err = t.lease.Reserve(t.estimate())
	default:
		t.lease, err = g.take(c, t.estimate())
	}
	if err != nil {
		return err
	}
	model, err := g.find(chat)
	if err != nil {
		return err
	}
	t.model = model
	if chat.MaxTokens > model.MaxOutput {
		return fault.New(fault.Invalid, "This model gives at most %d tokens, but %d were asked for.", model.MaxOutput, chat.MaxTokens).WithParam("max_tokens")
	}
	if len(model.Units) == 0 {
		return noUnit()
	}
	if !slices.ContainsFunc(model.Units, t.takes) {
		return t.notTaken()
	}
	t.rank = chat.Service
	if !Serves(model.Units, chat.Service) {
		if !t.req.Batch {
			return notServed(chat.Service)
		}
		t.rank = usage.Ordinary // who sends batches keeps to spare capacity
	}
	t.bounds()
	if err = t.price(); err != nil {
		return err
	}
	if err := g.Log.Ready(); err != nil {
		return err
	}
	if err := t.takeHold(ctx); err != nil {
		return err
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	t.booking, err = t.book(ctx)
	return err
}

// images fetches what the request names by address. It comes after the hold: who cannot pay makes us fetch nothing.
func (t *Ticket) images(ctx context.Context) error {
	chat, images := t.req.Chat, t.gate.Images
	if chat.RemoteImages == 0 {
		return nil
	}
	if images == nil {
		return fault.New(fault.Invalid, "Images are not fetched here: send the image itself as a data: URL.").
			WithCode("unsupported_image_url").WithParam("messages")
	}
	return chat.FetchImages(ctx, func(ctx context.Context, url string) ([]byte, error) {
		image, free, err := images.Fetch(ctx, t.req.Caller.Org, url)
		if err == nil {
			t.fetching.Lock()
			t.fetched = append(t.fetched, free)
			t.fetching.Unlock()
		}
		return image, err
	})
}

func (g *Gate) model(name string) (*catalogue.Model, error) {
	model, known := g.Models.Model(name)
	if !known {
		return nil, fault.New(fault.NotFound, "The model %q does not exist. GET /v1/models lists those that do.", name).
			WithCode("model_not_found").WithParam("model")
	}
	return model, nil
}

// find gives the request's model, and keeps of the request's extras those that it takes.
func (g *Gate) find(chat *protocol.ChatRequest) (*catalogue.Model, error) {
	model, err := g.model(chat.Model)
	if err != nil {
		return nil, err
	}
	if len(chat.Extras) > 0 {
		chat.KeepExtras(model.Extras)
		nameDropped(chat, model.Units)
	}
	return model, nil
}

// nameDropped tells the client which of its extras an engine of the model leaves out: which engine will serve is not known
// yet.
func nameDropped(chat *protocol.ChatRequest, units []*catalogue.Unit) {
	for _, name := range chat.Extras {
		drops := func(u *catalogue.Unit) bool { return u.Driver.Drops(name) }
		if slices.ContainsFunc(units, drops) {
			chat.Ignored.Name(name)
		}
	}
}

// notTaken says why no unit takes a request.
func (t *Ticket) notTaken() error {
	if t.req.Chat.N > 1 {
		return fault.New(fault.Invalid, "This model gives one answer for a request: leave n out, and ask again for another.").WithParam("n").WithCode("unsupported_value")
	}
	return engine.NoText()
}

func noUnit() error {
	return fault.New(fault.Unavailable, "No engine serves this model right now. Try again shortly.").
		WithCode("no_engine_ready").WithRetryAfter(2 * time.Second)
}

func (t *Ticket) promptEstimate() int64 { return protocol.EstimateTokens(t.req.Chat.TextBytes) }

// estimate is what the request will take from a limit of tokens per minute.
func (t *Ticket) estimate() int64 {
	chat := t.req.Chat
	out := chat.MaxTokens
	switch {
	case chat.Task == protocol.TaskEmbedding:
		out = 0
	case out == 0:
		out = sliceTokens
	}
	return t.promptEstimate() + out*int64(chat.N)
}

// takeHold holds the dearest that the prompt can cost and the first slice of the answer, at the dearest tier that a prompt
// of its bound can fall in.
func (t *Ticket) takeHold(ctx context.Context) error {
	chat, n := t.req.Chat, int64(t.req.Chat.N)
	total, first := n*chat.MaxTokens, int64(sliceTokens)
	if chat.MaxTokens == 0 && chat.Task != protocol.TaskEmbedding {
		total, first = n*t.model.Context, n*t.model.DefaultOutput
	}
	first = min(first, total)
	t.meter.total, t.meter.held = total, first
	p := t.quote.Most(t.bound)
	prompt, ok := money.Cost(t.bound, p.Dearest(usage.Input, usage.Cached, usage.CacheWrite, usage.Image, usage.Audio))
	output, ok2 := money.Cost(first, p.Dearest(usage.Output, usage.Reasoning))
	sum, ok3 := money.Add(prompt, output)
	sum, ok4 := money.Add(sum, p[usage.Requests])
	if !ok || !ok2 || !ok3 || !ok4 {
		return fault.New(fault.Invalid, "This request could cost more than any request may.").WithParam("max_tokens")
	}
	t.held = sum.CeilNano()
	hold, err := t.gate.Budgets.Hold(ctx, payer(&t.req.Caller), t.held)
	if err == nil {
		t.hold = hold
	}
	return err
}

// Headers sets the headers that tell of the key's limits.
func (t *Ticket) Headers(h http.Header) { t.lease.Headers(h) }

// AnthropicHeaders sets the same in the form of Anthropic's API.
func (t *Ticket) AnthropicHeaders(h http.Header) { t.lease.AnthropicHeaders(h) }
