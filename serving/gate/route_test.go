package gate_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/tok"
	"millrace/serving/gate/gatetest"
)

// place puts engines on hosts and makes them ready.
func place(t *testing.T, s *gatetest.Stand, family engine.Family, engines ...*gatetest.Engine) (units []ids.ID) {
	t.Helper()
	addresses := map[ids.ID]string{}
	dial := func(ctx context.Context, to catalogue.Agent) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(addresses[to.Host], "http://"))
	}
	s.Model.Units = nil
	for i, e := range engines {
		id, host := ids.New(), ids.New()
		addresses[host] = e.URL
		u, err := catalogue.NewUnit(catalogue.Spec{ID: id, Name: fmt.Sprint("unit", i), Model: s.Model.ID, Engine: family, UpstreamModel: "inner",
			Base: "https://agent.test" + wire.DataPrefix + id.String(), Host: host}, clock.System, dial)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(u.Pool().Close)
		s.Model.Units = append(s.Model.Units, u)
		s.Router.Apply(wire.Fact{Load: &wire.Load{Unit: id, Engine: id, State: wire.StateReady}})
		units = append(units, id)
	}
	return units
}

// A prompt goes where its prefix is cached, by the tokens that the engine's driver tells; the agent gets the attempt's id.
func TestPrefixesAreFollowed(t *testing.T) {
	engines := []*gatetest.Engine{gatetest.NewEngine(t, gatetest.Stream(good)), gatetest.NewEngine(t, gatetest.Stream(good)), gatetest.NewEngine(t, gatetest.Stream(good))}
	s := gatetest.New(t, gatetest.Options{})
	units := place(t, s, engine.Sim, engines...)
	body := strings.Replace(request(streamed), "hello there", strings.Repeat("the river flows past the mill ", 100), 1)
	tokens, err := tok.ApplyChat([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	salt := gatetest.Salts{}.CacheSalt(ids.Format(ids.Org, s.Caller.Org))
	d, _ := engine.Lookup(engine.Sim)
	for holder, unit := range units {
		s.Router.Apply(wire.Fact{KV: &wire.KV{Unit: unit, Engine: unit, Reset: true, BlockSize: d.BlockSize(), Stored: kvevent.ChainHashes(salt, tokens, d.BlockSize())}})
		before := engines[holder].Requests()
		for range 4 {
			if answer, text, _ := post(t, s, body); answer.StatusCode != 200 {
				t.Fatalf("%d %s", answer.StatusCode, text)
			}
		}
		if n := engines[holder].Requests() - before; n != 4 {
			t.Errorf("%d of 4 requests went to the unit that holds the prompt", n)
		}
		head, sent := engines[holder].Last()
		if head.Get(wire.HeaderKind) != wire.KindServe || head.Get(wire.HeaderAttempt) == "" || !strings.Contains(sent, `"cache_salt":"`+salt) {
			t.Errorf("the agent got %v %s", head, sent)
		}
		s.Router.Apply(wire.Fact{KV: &wire.KV{Unit: unit, Engine: unit, Seq: 1, Removed: kvevent.ChainHashes(salt, tokens, d.BlockSize())}})
	}
	events := s.Log.Events()
	head, _ := engines[2].Last()
	if last := events[len(events)-1].Attempts[0]; last.ID.String() != head.Get(wire.HeaderAttempt) || last.Unit != units[2] {
		t.Errorf("the event says %+v, the agent got %v", last, head)
	}
}

// Where nobody tells tokens, equal beginnings still go to the same unit, and one session's requests too.
func TestBytesAndSessionsAreFollowed(t *testing.T) {
	engines := []*gatetest.Engine{gatetest.NewEngine(t, gatetest.Stream(good)), gatetest.NewEngine(t, gatetest.Stream(good)), gatetest.NewEngine(t, gatetest.Stream(good))}
	for name, members := range map[string]string{"bytes": streamed, "session": streamed + `,"prompt_cache_key":"thread-1"`} {
		s := gatetest.New(t, gatetest.Options{Family: engine.LlamaCpp}, engines...)
		text := "hello there"
		if name == "bytes" {
			text = strings.Repeat("the river flows past the mill ", 100)
		}
		before := []int{engines[0].Requests(), engines[1].Requests(), engines[2].Requests()}
		for range 6 {
			post(t, s, strings.Replace(request(members), "hello there", text, 1))
		}
		used := 0
		for i, e := range engines {
			if e.Requests() > before[i] {
				used++
			}
		}
		if used != 1 {
			t.Errorf("%s: %d units were used", name, used)
		}
	}
}

// Units that are not ready get nothing; when none is, clients are told to come back.
func TestNobodyIsReady(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(good))
	s := gatetest.New(t, gatetest.Options{})
	units := place(t, s, engine.Sim, e)
	s.Router.Apply(wire.Fact{Load: &wire.Load{Unit: units[0], Engine: units[0], State: wire.StateDraining}})
	answer, body, _ := post(t, s, request(streamed))
	if answer.StatusCode != 503 || e.Requests() != 0 || len(s.Log.Events()) != 0 {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	s.Model.Units = nil
	if answer, body, _ := post(t, s, request(streamed)); answer.StatusCode != 503 {
		t.Errorf("no units: %d %s", answer.StatusCode, body)
	}
}

// Nothing is left running after requests of every kind.
func TestNoGoroutineIsLeft(t *testing.T) {
	e := gatetest.NewEngine(t, nil)
	s := gatetest.New(t, gatetest.Options{}, e)
	scripts := []gatetest.Script{gatetest.Stream(good), gatetest.Cut(good, 500), gatetest.Refuse(500, `{}`), gatetest.Stream(role() + says("one", 1)),
		func(c net.Conn, _ int) bool {
			gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(role()+says("one", 1)))
			gatetest.Gone(c)
			return false
		}}
	round := func() {
		for _, script := range scripts {
			e.Play(script)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			req, _ := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader(request(streamed)))
			if answer, err := http.DefaultClient.Do(req); err == nil {
				_, _ = answer.Body.Read(make([]byte, 64))
				answer.Body.Close()
			}
			cancel()
		}
		for s.Gate.Running() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	round()
	settled := func() int {
		http.DefaultClient.CloseIdleConnections()
		s.Model.Units[0].Pool().Close()
		time.Sleep(20 * time.Millisecond)
		return runtime.NumGoroutine()
	}
	before := settled()
	for range 10 {
		round()
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		after := settled()
		if after <= before+2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", before, after)
		}
	}
}
