package gate_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
)

// The client goes: the engine learns it at once, and what was delivered is paid.
func TestTheClientLeaves(t *testing.T) {
	left := make(chan struct{})
	half := role() + says("one", 1) + says(" two", 2)
	e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(half))
		gatetest.Gone(c)
		close(left)
		return false
	})
	s := gatetest.New(t, gatetest.Options{}, e)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader(request(streamed)))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for n := 0; !bytes.Contains(buf[:n], []byte("two")); {
		m, err := answer.Body.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	cancel()
	answer.Body.Close()
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Fatal("the engine goes on for nobody")
	}
	ev := s.Event(t)
	if ev.Ending != usage.ClientLeft || ev.Usage != (usage.Vector{usage.Input: 100, usage.Output: 2, usage.Requests: 1}) || !ev.Estimated || ev.Status != 200 {
		t.Errorf("%+v", ev)
	}
}

// A client that leaves before anything was generated pays nothing; one that waits for a whole answer pays what was
// generated until it left.
func TestTheClientLeavesEarly(t *testing.T) {
	for _, tt := range []struct {
		name, members, sent string
		want                usage.Vector
	}{
		{"before the first token", streamed, role(), usage.Vector{}},
		{"before the first token of a whole answer", "", role(), usage.Vector{}},
		{"in a whole answer", "", role() + says("one", 1) + says(" two", 2), usage.Vector{usage.Input: 100, usage.Output: 2, usage.Requests: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent, left := make(chan struct{}), make(chan struct{})
			e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
				gatetest.SendTaken(c, gatetest.StreamHead, gatetest.Chunk(tt.sent))
				close(sent)
				gatetest.Gone(c)
				close(left)
				return false
			})
			s := gatetest.New(t, gatetest.Options{}, e)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-sent
				cancel()
			}()
			req, _ := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader(request(tt.members)))
			if answer, err := http.DefaultClient.Do(req); err == nil {
				answer.Body.Close()
				t.Fatal("an answer came")
			}
			select {
			case <-left:
			case <-time.After(5 * time.Second):
				t.Fatal("the engine goes on for nobody")
			}
			if ev := s.Event(t); ev.Ending != usage.ClientLeft || ev.Usage != tt.want || ev.Status != 499 {
				t.Errorf("%+v", ev)
			}
		})
	}
}

// deaf is a client whose connection takes nothing.
type deaf struct{ header http.Header }

func (d deaf) Header() http.Header       { return d.header }
func (d deaf) WriteHeader(int)           {}
func (d deaf) Write([]byte) (int, error) { return 0, errors.New("gone") }

// A client that got nothing pays the prompt that was computed, and no token of the answer, whatever class it is of.
func TestNothingWritten(t *testing.T) {
	thinking := strings.Replace(says("one", 3), `"completion_tokens":3`, `"completion_tokens":3,"completion_tokens_details":{"reasoning_tokens":2}`, 1)
	s := gatetest.New(t, gatetest.Options{Direct: true}, gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(role()+thinking))
		gatetest.Gone(c)
		return false
	}))
	req, err := http.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(request(streamed)))
	if err != nil {
		t.Fatal(err)
	}
	s.ServeHTTP(deaf{http.Header{}}, req)
	if ev := s.Event(t); ev.Ending != usage.ClientLeft || ev.Usage.Prompt() != 100 || ev.Usage.Generated() != 0 {
		t.Errorf("%+v", ev)
	}
}

// What we call off ourselves is paid by nobody, whether its client would have paid or not.
func TestWhatIsCalledOffIsFree(t *testing.T) {
	for _, members := range []string{"", streamed} {
		for name, tt := range map[string]struct {
			cause  error
			ending usage.Ending
			paid   bool
		}{"called off": {gate.ErrCalledOff, usage.FailedUnbilled, false}, "left": {nil, usage.ClientLeft, true}} {
			began := make(chan struct{})
			e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
				gatetest.SendTaken(c, gatetest.StreamHead, gatetest.Chunk(role()+says("one", 1)+says(" two", 2)))
				close(began)
				gatetest.Gone(c)
				return false
			})
			s := gatetest.New(t, gatetest.Options{Direct: true}, e)
			chat, err := protocol.DecodeChat([]byte(request(members)))
			if err != nil {
				t.Fatal(err)
			}
			ticket, err := s.Gate.Admit(t.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: chat, Dialect: &gatetest.Dialect})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() { <-began; cancel(tt.cause) }()
			err = ticket.Serve(ctx, httptest.NewRecorder())
			if ev := s.Event(t); ev.Ending != tt.ending || (ev.Charge > 0) != tt.paid || (err == nil) != tt.paid {
				t.Errorf("%s%s: %v, %+v", name, members, err, ev)
			}
		}
	}
}
