package openai

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"millrace/api/inference"
	"millrace/api/problem"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	dialect "millrace/serving/protocol/responses"
	"millrace/serving/responses"
)

// Limits of WebSockets.
const (
	socketLife    = time.Hour // of a connection, as OpenAI has it
	socketWrite   = time.Minute
	socketWaiting = 8    // requests that wait for the one before them, together no larger than one body may be
	maxSockets    = 4096 // of one gateway
	maxSocketsOrg = 64   // of them, of one organization: each may hold a conversation in memory
)

// sockets are the open WebSockets. The zero value is ready.
type sockets struct {
	mu     sync.Mutex
	open   map[*socket]bool
	orgs   map[ids.ID]int // how many of them are an organization's
	closed bool
	tasks  sync.WaitGroup
}

// socket is one connection: its requests are answered one after another.
type socket struct {
	api     *API
	r       *http.Request // of the handshake: it holds the key
	org     ids.ID
	conn    *websocket.Conn
	ctx     context.Context
	end     context.CancelFunc // cuts it
	last    responses.Last
	waiting atomic.Int64  // bytes of requests that wait
	stop    chan struct{} // closed when it is to end after the request that runs
}

// socket answers a handshake and then the requests that come, until either side ends it.
func (a *API) socket(w http.ResponseWriter, r *http.Request) error {
	caller, err := a.visit(r)
	if err != nil {
		return err
	}
	s := &socket{api: a, r: r, org: caller.Org, stop: make(chan struct{})}
	if err := a.sockets.enter(s); err != nil {
		return err
	}
	defer a.sockets.leave(s)
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil // it has been answered
	}
	conn.SetReadLimit(protocol.MaxBodyBytes)
	s.conn = conn
	defer conn.CloseNow()
	defer s.end()
	s.run()
	return nil
}

func (t *sockets) enter(s *socket) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return fault.New(fault.Unavailable, "This gateway is shutting down. Try again.").WithCode("shutting_down").WithRetryAfter(time.Second)
	case len(t.open) >= maxSockets:
		return fault.New(fault.Unavailable, "Too many WebSockets are open just now. Try again.").WithRetryAfter(time.Second)
	case t.orgs[s.org] >= maxSocketsOrg:
		return fault.New(fault.Limited, "Your organization has %d WebSockets open here, the most there may be. Try again when one has ended.", maxSocketsOrg).
			WithCode("websocket_limit_exceeded").WithRetryAfter(time.Second)
	case t.open == nil:
		t.open, t.orgs = map[*socket]bool{}, map[ids.ID]int{}
	}
	s.ctx, s.end = context.WithTimeout(context.Background(), socketLife) // the handshake's would carry the connection's cork
	t.open[s] = true
	t.orgs[s.org]++
	t.tasks.Add(1)
	return nil
}

func (t *sockets) leave(s *socket) {
	t.mu.Lock()
	delete(t.open, s)
	if t.orgs[s.org]--; t.orgs[s.org] == 0 {
		delete(t.orgs, s.org)
	}
	t.mu.Unlock()
	t.tasks.Done()
}

// Drain lets no more WebSockets in and waits until those that are open have answered what runs; when ctx ends they are cut.
func (a *API) Drain(ctx context.Context) error {
	t := &a.sockets
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		for s := range t.open {
			close(s.stop)
		}
	}
	t.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the last socket, which the cutting below sees to
		t.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		t.mu.Lock()
		for s := range t.open {
			s.end()
		}
		t.mu.Unlock()
		<-ended
	}
	return nil
}

// run reads in one goroutine, which also notices that the client has gone, and answers in this one.
func (s *socket) run() {
	requests := make(chan []byte, socketWaiting)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer s.end()
		for {
			_, text, err := s.conn.Read(s.ctx)
			if err != nil {
				return
			}
			size := int64(len(text))
			if all := s.waiting.Add(size); all > protocol.MaxBodyBytes && all > size {
				_ = s.conn.Close(websocket.StatusPolicyViolation, "The requests that wait are too large together.")
				return
			}
			select {
			case requests <- text:
			case <-s.ctx.Done():
				return
			}
		}
	})
	defer reader.Wait()
	defer s.end()
	for {
		select {
		case <-s.ctx.Done():
			if errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
				s.say(fault.New(fault.Invalid, "This WebSocket has been open for an hour: open another one.").WithCode("websocket_connection_limit_reached"))
			}
			return
		case <-s.stop:
			_ = s.conn.Close(websocket.StatusGoingAway, "This gateway is shutting down.")
			return
		case text := <-requests:
			s.waiting.Add(-int64(len(text)))
			if err := s.answer(text); err != nil {
				s.last.Forget()
				s.say(err)
			}
		}
	}
}

// answer answers one request. An error is what the client is to be told.
func (s *socket) answer(text []byte) error {
	caller, err := s.api.Door.Authenticate(s.r) // the key may have been revoked since the handshake
	if err != nil {
		return err
	}
	body, generate, err := create(text)
	if err != nil {
		return err
	}
	req, err := dialect.Decode(body)
	if err != nil {
		return err
	}
	p, err := s.api.Responses.Prepare(s.ctx, responses.Call{ID: ids.New(), Caller: caller, Request: req, Session: inference.Session(s.r.Header)}, &s.last)
	if err != nil {
		return err
	}
	if !generate {
		return s.warm(p)
	}
	for {
		ticket, err := s.api.Gate.Admit(s.ctx, p.Admission(s.api.Responses))
		if err == nil {
			err = responses.Serve(s.ctx, ticket, &socketWriter{s: s, head: http.Header{}})
		}
		if !p.Shorten(err) {
			return dialect.Translate(err)
		}
	}
}

// create reads a response.create event: the request it holds, which is always streamed and never in the background.
// generate: false asks for nothing to be generated.
func create(text []byte) (body []byte, generate bool, err error) {
	m := scan.Object(text)
	kind := ""
	body, generate = append(make([]byte, 0, len(text)+16), `{"stream":true`...), true
	for m.Next() {
		switch string(m.Key) {
		case "type":
			kind = dialect.Text(m.Value)
		case "generate":
			generate = string(m.Value) != "false"
		case "stream", "stream_options", "background":
		default:
			body = append(append(body, ','), text[m.Start:m.End]...)
		}
	}
	if m.Err() != nil {
		return nil, false, fault.New(fault.Invalid, "An event must be a JSON object.").WithCode("invalid_json")
	}
	if kind != "response.create" {
		return nil, false, fault.New(fault.Invalid, "The only event that a client sends is response.create.").WithParam("type").WithCode("unknown_event")
	}
	return append(body, '}'), generate, nil
}

// warm answers a request for which nothing is to be generated: what it holds can be continued from. It takes one request
// from the key's limits, and costs nothing.
func (s *socket) warm(p *responses.Prepared) error {
	if err := s.api.Responses.Warm(s.ctx, p); err != nil {
		return err
	}
	a := p.Answers.New(true, protocol.AnswerParams{Model: p.Chat.Model, Created: s.api.Door.Clock.Now().Unix(), N: 1})
	defer a.Release()
	out, _, err := a.Add(nil, []byte(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`))
	if err != nil {
		return err
	}
	w := socketWriter{s: s}
	_, _ = w.Write(a.End(a.Finish(out, &usage.Vector{}))) // a failed write means that the client has gone
	return nil
}

// say tells the client of an error before an answer has begun: in the nested shape and, as in streams, flat beside it.
func (s *socket) say(err error) {
	f := problem.Fault(err)
	frame := dialect.Member(problem.OpenAIFrame(err), "error")
	if dialect.Member(frame, "code") == nil {
		frame = bytes.Replace(frame, []byte(`"code":null`), append([]byte(`"code":`), dialect.Member(frame, "type")...), 1)
	}
	out := strconv.AppendInt([]byte(`{"type":"error","status":`), int64(f.Kind.Status()), 10)
	out = append(append(append(out, `,"error":`...), frame...), '}')
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), socketWrite)
	defer cancel()
	_ = s.conn.Write(ctx, websocket.MessageText, out)
}

// socketWriter is the gate's client: each event becomes a message.
type socketWriter struct {
	s    *socket
	head http.Header
}

// Header implements http.ResponseWriter.
func (w *socketWriter) Header() http.Header { return w.head }

// WriteHeader implements http.ResponseWriter.
func (w *socketWriter) WriteHeader(int) {}

// Write implements http.ResponseWriter. It is given whole events.
func (w *socketWriter) Write(b []byte) (int, error) {
	ctx, cancel := context.WithTimeout(w.s.ctx, socketWrite)
	defer cancel()
	for event := range bytes.SplitSeq(b, []byte("\n\n")) {
		if _, data, found := bytes.Cut(event, []byte("\ndata: ")); found {
			if err := w.s.conn.Write(ctx, websocket.MessageText, data); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}
