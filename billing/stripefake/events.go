package stripefake

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v76/webhook"
)

// event is what happened.
type event struct {
	ID       string          `json:"id"`
	Object   string          `json:"object"`
	Version  string          `json:"api_version"`
	Created  int64           `json:"created"`
	Livemode bool            `json:"livemode"`
	Pending  int64           `json:"pending_webhooks"`
	Request  map[string]any  `json:"request"`
	Type     string          `json:"type"`
	Data     json.RawMessage `json:"data"`
}

func eventID(x *event) string { return x.ID }

// emit keeps an event and queues it for delivery. The caller holds mu.
func (s *Server) emit(kind string, object any) {
	data, err := json.Marshal(map[string]any{"object": object})
	if err != nil {
		panic(err) // the fake's own types
	}
	e := &event{ID: newID("evt"), Object: "event", Version: APIVersion, Created: unix(s.now()), Pending: 1, Request: map[string]any{"id": nil, "idempotency_key": nil}, Type: kind, Data: data}
	s.mem.Events = append(s.mem.Events, e)
	if s.send.on {
		s.send.queue = append(s.send.queue, e)
		select {
		case s.send.wake <- struct{}{}:
		default:
		}
	}
}

func (s *Server) listEvents(c *call) *reply {
	failed := c.params.Get("delivery_success") == "false" // the fake does not keep whose delivery failed: none
	return page(c, s.mem.Events, eventID, func(x *event) int64 { return x.Created }, func(*event) bool { return !failed }, func(x *event) any { return x })
}

// Message is an event as it is delivered.
type Message struct {
	ID, Type  string
	Body      []byte
	Signature string // of the header Stripe-Signature
}

// Messages are all events so far, signed now, oldest first.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Message, len(s.mem.Events))
	for i, e := range s.mem.Events {
		out[i] = s.sign(e)
	}
	return out
}

func (s *Server) sign(e *event) Message {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // the fake's own types
	}
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: body, Secret: s.cfg.Secret})
	return Message{ID: e.ID, Type: e.Type, Body: body, Signature: signed.Header}
}

// Knobs turn delivery into what the network does to it.
type Knobs struct {
	Drop      bool          // nothing is delivered
	Duplicate bool          // everything comes twice
	Reorder   bool          // what waits is delivered newest first
	Delay     time.Duration // before each
}

type sender struct {
	on    bool
	queue []*event
	knobs Knobs
	wake  chan struct{}
}

// Turn sets the knobs.
func (s *Server) Turn(k Knobs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send.knobs = k
}

// Delivery is tried so often, as in a test account, with growing pauses.
const (
	tries        = 3
	firstPause   = time.Second
	deliverLimit = 10 * time.Second
)

// Deliver posts events to url as they happen, until ctx ends. Call it once.
func (s *Server) Deliver(ctx context.Context, url string) error {
	s.mu.Lock()
	s.send.on = true
	s.mu.Unlock()
	client := &http.Client{Timeout: deliverLimit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for {
		e, knobs, left := s.next()
		if !left {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-s.send.wake:
			}
			continue
		}
		if wait(ctx, knobs.Delay) != nil {
			return ctx.Err()
		}
		if knobs.Drop {
			continue
		}
		s.deliver(ctx, client, url, e)
		if knobs.Duplicate {
			s.deliver(ctx, client, url, e)
		}
	}
}

func (s *Server) next() (e *event, k Knobs, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k = s.send.knobs
	if len(s.send.queue) == 0 {
		return nil, k, false
	}
	i := 0
	if k.Reorder {
		i = len(s.send.queue) - 1
	}
	e = s.send.queue[i]
	s.send.queue = slices.Delete(s.send.queue, i, i+1)
	return e, k, true
}

func (s *Server) deliver(ctx context.Context, client *http.Client, url string, e *event) {
	pause := firstPause
	for range tries {
		if post(ctx, client, url, s.sign(e)) || wait(ctx, pause) != nil {
			return
		}
		pause *= 2
	}
}

func post(ctx context.Context, client *http.Client, url string, m Message) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.Body))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("Stripe-Signature", m.Signature)
	resp, err := client.Do(r)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	return resp.StatusCode/100 == 2
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Settle lets money that was to arrive later arrive, or not.
func (s *Server) Settle(sessionWanted string, arrives bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := find(s.mem.Sessions, sessionID, sessionWanted)
	if x == nil {
		return false
	}
	in := find(s.mem.Intents, intentID, text(x.Intent))
	if in == nil || in.Status != "processing" {
		return false
	}
	ch := find(s.mem.Charges, chargeID, text(in.Charge))
	if arrives {
		s.arrive(in, ch)
		x.Payment = "paid"
		s.emit("checkout.session.async_payment_succeeded", x)
	} else {
		ch.Status, ch.Failure = "failed", "insufficient_funds"
		in.Status, in.LastError = "requires_payment_method", &apiError{Type: "card_error", Code: "insufficient_funds", Message: "The account has insufficient funds."}
		s.emit("payment_intent.payment_failed", in)
		s.emit("checkout.session.async_payment_failed", x)
	}
	s.save()
	return true
}

// Pay is what a person does on a page, without the page. The answer is what the page would say; "" = through.
func (s *Server) Pay(sessionWanted string, w Way) (problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	x := find(s.mem.Sessions, sessionID, sessionWanted)
	if x == nil {
		return "There is no such page."
	}
	out := s.complete(x, w)
	s.save()
	if out.asks {
		return "Your bank asks you to confirm."
	}
	return out.problem
}
