package gate_test

import (
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
	"millrace/tenants/limits"
)

// line admits a request as a line of a batch.
func line(ctx context.Context, t *testing.T, s *gatetest.Stand) (*httptest.ResponseRecorder, error) {
	t.Helper()
	chat, err := protocol.DecodeChat([]byte(request("")))
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := s.Gate.Admit(ctx, gate.Request{ID: ids.New(), Caller: s.Caller, Chat: chat, Dialect: &gatetest.Dialect, Batch: true})
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	return w, ticket.Serve(ctx, w)
}

// ordinaryOnly prices no other tier.
type ordinaryOnly struct{ *gatetest.Prices }

func (p ordinaryOnly) Quote(org, model ids.ID, book string, at time.Time, s usage.Service) (usage.Quote, error) {
	if s != usage.Ordinary {
		return usage.Quote{}, fault.New(fault.Invalid, "Not offered.").WithParam("service_tier")
	}
	return p.Prices.Quote(org, model, book, at, s)
}

// A line of a batch is at the batch tier where there is one, else ordinary; it takes the last rank where engines have ranks.
func TestABatchLineTakesWhatTierThereIs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		family  engine.Family
		offered bool
		service usage.Service
		ranked  bool
	}{
		{"priced and ranked", engine.VLLM, true, usage.Batch, true},
		{"priced, without ranks", engine.LlamaCpp, true, usage.Batch, false},
		{"ranked, not priced", engine.VLLM, false, usage.Ordinary, true},
		{"neither", engine.LlamaCpp, false, usage.Ordinary, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := gatetest.NewEngine(t, gatetest.Stream(good))
			s := gatetest.New(t, gatetest.Options{Family: tt.family, Placed: true, Direct: true}, e)
			if !tt.offered {
				s.Gate.Prices = ordinaryOnly{s.Prices}
			}
			s.Caller.RPM = 1
			s.Gate.Limits = limits.New(s.Gate.Clock)
			for range 2 { // the key's limit of one request a minute is not for these
				if w, err := line(t.Context(), t, s); err != nil || w.Code != 200 {
					t.Fatalf("%v %+v", err, w)
				}
			}
			_, sent := e.Last()
			if ev := s.Log.Events()[0]; ev.Service != tt.service || ev.Charge != full || strings.Contains(sent, `"priority":1`) != tt.ranked {
				t.Errorf("%+v, the engine got %s", ev, sent)
			}
		})
	}
}

// Nobody got anything of a line that was called off: it costs nothing.
func TestABatchLineThatIsCalledOffCostsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := gatetest.New(t, gatetest.Options{Direct: true}, gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.SendTaken(c, gatetest.StreamHead, gatetest.Chunk(good[:strings.Index(good, "\n\n")+2]))
		cancel()
		gatetest.Gone(c)
		return false
	}))
	w, err := line(ctx, t, s)
	if !fault.Is(err, fault.Unavailable) || w.Body.Len() > 0 {
		t.Fatalf("%v %s", err, w.Body)
	}
	if ev := s.Event(t); ev.Ending != usage.FailedUnbilled || ev.Charge != 0 || ev.Usage != (usage.Vector{}) {
		t.Errorf("%+v", ev)
	}
}

// What is charged is handed over: calling a line off while its event is on its way to the log does not cut its answer.
func TestABatchLineThatIsChargedIsHandedOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := gatetest.New(t, gatetest.Options{Direct: true}, gatetest.NewEngine(t, gatetest.Stream(good)))
	s.Log.Stick(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for len(s.Log.Events()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		s.Log.Stick(false)
	}()
	w, err := line(ctx, t, s)
	<-done
	if err != nil || !strings.HasSuffix(w.Body.String(), "}\n") || s.Event(t).Ending != usage.Complete {
		t.Errorf("%v %s", err, w.Body)
	}
}
