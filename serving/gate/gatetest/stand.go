package gatetest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/gate"
	"millrace/serving/gate/cork"
	"millrace/serving/protocol"
	"millrace/serving/route"
	"millrace/tenants/keys"
	"millrace/tenants/limits"
)

// ModelName is the public name of the stand's model.
const ModelName = "acme/test"

// Rich is a balance that no test uses up.
const Rich money.Nano = 1 << 50

// Stand is a gate with everything around it, behind a server.
type Stand struct {
	Gate    *gate.Gate
	Router  *route.Router
	Budgets *Budgets
	Log     *Log
	Prices  *Prices
	Model   *catalogue.Model
	Models  Models
	Caller  keys.Principal
	Dialect *gate.Dialect
	URL     string
}

// Options of a stand.
type Options struct {
	Times    gate.Times
	Cap      money.Nano // 0 = Rich
	Family   engine.Family
	Direct   bool // no server: the test calls the gate itself
	Placed   bool // the units are run by an agent, and ready
	Images   gate.Images
	Standing gate.Standing
}

// New puts a gate before engines and checks its promises at the test's end.
func New(t testing.TB, o Options, engines ...*Engine) *Stand {
	t.Helper()
	if o.Cap == 0 {
		o.Cap = Rich
	}
	if o.Family == "" {
		o.Family = engine.VLLM
	}
	s := &Stand{Router: route.New(clock.System, nil), Budgets: NewBudgets(o.Cap), Log: &Log{}, Prices: NewPrices(), Dialect: &Dialect,
		Model:  &catalogue.Model{ID: ids.New(), Name: ModelName, Context: 8192, MaxOutput: 8192, DefaultOutput: 1024, Extras: catalogue.UsualExtras, Created: time.Unix(1_700_000_000, 0)},
		Caller: keys.Principal{Org: ids.New(), Project: ids.New(), Key: ids.New(), PriceBook: "standard", TimeZone: "UTC", FailurePolicy: "delivered"}}
	for _, e := range engines {
		spec := catalogue.Spec{ID: ids.New(), Name: "unit", Model: s.Model.ID, Engine: o.Family, UpstreamModel: "inner", Base: e.URL, Key: "sk-up"}
		if o.Placed {
			spec.Host = ids.New()
			s.Router.Apply(wire.Fact{Load: &wire.Load{Unit: spec.ID, Engine: spec.ID, State: wire.StateReady}})
		}
		u, err := catalogue.NewUnit(spec, clock.System, dialHost)
		if err != nil {
			t.Fatal(err)
		}
		s.Model.Units = append(s.Model.Units, u)
		t.Cleanup(u.Pool().Close)
	}
	s.Models = Models{ModelName: s.Model}
	s.Gate = gate.New(gate.Options{Clock: clock.System, Models: s.Models, Router: s.Router, Limits: limits.New(clock.System), Prices: s.Prices,
		Budgets: s.Budgets, Log: s.Log, Salts: Salts{}, Standing: o.Standing, Images: o.Images, Times: o.Times})
	t.Cleanup(func() {
		s.Budgets.Check(t)
		if n := s.Router.Stats().Bookings; n != 0 {
			t.Errorf("%d bookings are left", n)
		}
		if n := s.Gate.Running(); n != 0 {
			t.Errorf("%d requests run", n)
		}
	})
	if !o.Direct {
		s.URL = Serve(t, s)
	}
	return s
}

// dialHost stands for the way to a host's agent.
func dialHost(ctx context.Context, a catalogue.Agent) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", a.Address)
}

// Serve starts a server as the program does, and gives its URL.
func Serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Listener = cork.Listen(server.Listener)
	server.Config.ConnContext = cork.Context
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// Dialect is Chat Completions with plain errors.
var Dialect = gate.Dialect{
	Name:   "chat",
	Prefix: "chatcmpl-",
	Answer: func(stream bool, p protocol.AnswerParams) protocol.Answer {
		if stream {
			return protocol.NewChatStream(p)
		}
		return protocol.NewChatWhole(p)
	},
	Frame: func(err error) []byte {
		f := fault.Of(err)
		text, _ := json.Marshal(map[string]any{"error": map[string]any{"message": f.Message, "type": f.Kind.String(), "code": f.Code, "param": f.Param}})
		return text
	},
}

// ServeHTTP serves Chat Completions as an API would.
func (s *Stand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = s.serve(w, r, body)
	}
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(fault.Of(err).Kind.Status())
		_, _ = w.Write(Dialect.Frame(err))
	}
}

func (s *Stand) serve(w http.ResponseWriter, r *http.Request, body []byte) error {
	req, err := protocol.DecodeChat(body)
	if err != nil {
		return err
	}
	ticket, err := s.Gate.Admit(r.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: req, Dialect: s.Dialect})
	if err != nil {
		return err
	}
	ticket.Headers(w.Header())
	return ticket.Serve(r.Context(), w)
}

// Event waits for the one final event and fails when there are others.
func (s *Stand) Event(t testing.TB) *usage.Event {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if s.Gate.Running() == 0 && len(s.Log.Events()) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests run, %d events", s.Gate.Running(), len(s.Log.Events()))
		}
	}
	events := s.Log.Events()
	if len(events) != 1 {
		t.Fatalf("%d events, want 1", len(events))
	}
	return events[0]
}
