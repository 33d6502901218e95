package hub

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace/agents/host"
	"millrace/agents/internal/testengine"
	"millrace/agents/wire"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine/kvevent"
	"millrace/serving/route"
	"millrace/tenants"
)

// A host joins, gets an engine, serves a gateway, and everything that it tells arrives.
func TestAHostFromJoinToJournal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h1", "u1")
	b.agent(b.config(b.token("h1")))
	b.untilState(unit, wire.StateReady)
	attempt := b.whole("h1", unit, 3)
	r := b.recorded(attempt)
	h := b.host("h1")
	if r.Host != h.ID || r.Unit != unit || r.Kind != wire.KindServe || r.Ending != wire.EndComplete || r.Prompt != 8 || r.Generated != 3 || r.Handed != 3 || r.EndedSet != 1 {
		t.Errorf("%+v", r)
	}
	until(t, "what the agent observes", func() bool {
		h = b.host("h1")
		return len(h.Observed.Units) == 1 && h.Observed.Units[0].State == wire.StateReady && h.Applied == h.Generation
	})
	if !h.Linked || h.Version != "test" || !h.Observed.Simulated || h.Observed.CPUs < 1 || h.Observed.MemoryBytes < 1 || !strings.HasPrefix(h.DataURL, "https://127.0.0.1:") {
		t.Errorf("%+v", h)
	}
	until(t, "the cached block", func() bool { return b.holds(unit, testengine.Block(1)) })
	until(t, "the live view", func() bool {
		l := b.hub.Live()
		u := l.Units[unit]
		return u.Load.State == wire.StateReady && u.Load.KVUsage == 0.25 && u.Blocks == 1 && !l.Links[h.ID].IsZero()
	})
}

func TestTokensWorkOnceAndOnlyHere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	token := b.token("h1")
	cfg := b.config(token)
	b.agent(cfg)
	until(t, "the first host", func() bool { return b.host("h1").Linked })

	again := b.config(token)
	again.Log = quiet
	if err := host.Run(t.Context(), again); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("a used token: %v", err)
	}
	unknown := again
	unknown.Data, unknown.Join = t.TempDir(), wire.NewJoinToken(b.ca.Digest()).String()
	if err := host.Run(t.Context(), unknown); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("an unknown token: %v", err)
	}
	old := again
	old.Data, old.Join = t.TempDir(), b.token("h2")
	b.exec("UPDATE join_tokens SET expires_at = now() - interval '1 second' WHERE host_name = 'h2'")
	if err := host.Run(t.Context(), old); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("an old token: %v", err)
	}
	none := again
	none.Data, none.Join = t.TempDir(), ""
	if err := host.Run(t.Context(), none); err == nil || !strings.Contains(err.Error(), "--join") {
		t.Errorf("no token: %v", err)
	}
	if _, err := b.hub.JoinToken(t.Context(), "h3", tenants.Actor{}); err == nil {
		t.Error("anybody may make a token")
	}
	if _, err := b.hub.JoinToken(t.Context(), "no such name!", tenants.System()); err == nil {
		t.Error("any name goes")
	}
}

// A token of another authority: the secret must never be sent, and the host goes on waiting for its own hub.
func TestAHubOfAnotherAuthorityIsRefused(t *testing.T) {
	t.Parallel()
	b, other := newBench(t), newBench(t)
	b.start()
	other.start()
	cfg := b.config(b.token("h1"))
	cfg.Hub = "https://" + other.addr // somebody else answers at the hub's address
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := newLogWatch("authority")
	cfg.Log = log.logger()
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx, cfg) }()
	until(t, "the refusal", func() bool { return log.seen() })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Data, "identity.json")); err == nil {
		t.Error("it has an identity")
	}
}

func TestAHostSpeaksForItselfOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	u1, u2 := b.place("h1", "u1"), b.place("h2", "u2")
	b.agent(b.config(b.token("h1")))
	b.agent(b.config(b.token("h2")))
	b.untilState(u1, wire.StateReady)
	b.untilState(u2, wire.StateReady)
	h1, h2 := b.host("h1"), b.host("h2")
	// A gateway that dials h1's address as h2 meets h1's certificate.
	if c, err := b.gateway().Dial(t.Context(), catalogue.Agent{Host: h2.ID, Address: strings.TrimPrefix(h1.DataURL, "https://"), Secure: true}); err == nil {
		c.Close()
		t.Error("a host was taken for another")
	}
	// h1 tells of h2's unit: nobody hears it.
	me := &hostLink{id: h1.ID, moved: make(chan struct{})}
	b.hub.mu.Lock()
	me.desires = b.hub.links[h1.ID].desires
	b.hub.mu.Unlock()
	own := ownUnits{hub: b.hub, me: me}
	r := newRequest(t)
	for unit, want := range map[ids.ID]bool{u1: true, u2: false, ids.New(): false} {
		if ok, err := own.all(r, wire.Fact{Load: &wire.Load{Unit: unit}}); err != nil || ok != want {
			t.Errorf("unit %v: %v, %v", unit, ok, err)
		}
		if ok, err := own.all(r, wire.Fact{KV: &wire.KV{Unit: unit}}); err != nil || ok != want {
			t.Errorf("unit %v: %v, %v", unit, ok, err)
		}
	}
}

// A host that listens nowhere is reached through its link.
func TestAHostBehindNAT(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h1", "u1", "--token-time=20ms")
	cfg := b.config(b.token("h1"))
	cfg.DataListen = ""
	b.agent(cfg)
	b.untilState(unit, wire.StateReady)
	until(t, "its data URL", func() bool { return b.host("h1").DataURL == wire.DataByLink })
	if r := b.recorded(b.whole("h1", unit, 4)); r.Handed != 4 {
		t.Errorf("%+v", r)
	}
	ctx, leave := context.WithCancel(t.Context())
	resp, attempt, err := b.stream(ctx, "h1", unit, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	firstChunk(t, resp)
	leave()
	_ = resp.Body.Close()
	if r := b.recorded(attempt); r.Ending != wire.EndCallerLeft || r.Handed < 1 {
		t.Errorf("%+v", r)
	}
	until(t, "the engine to see the abort", func() bool {
		_, err := os.Stat(filepath.Join(cfg.Data, "engines", unit.String(), testengine.AbortFile))
		return err == nil
	})
}

func TestAKilledEngineAndAKilledAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h1", "u1", "--token-time=20ms")
	cfg := b.config(b.token("h1"))
	p := b.process(cfg)
	b.untilState(unit, wire.StateReady)
	enginePID := 0
	until(t, "the engine's process id", func() bool {
		if u := b.host("h1").Observed.Units; len(u) == 1 {
			enginePID = u[0].PID
		}
		return enginePID != 0
	})
	before := b.load(unit).Engine
	broken, brokenID, err := b.stream(t.Context(), "h1", unit, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Body.Close()
	firstChunk(t, broken)
	if err := syscall.Kill(enginePID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "gateways to know", func() bool { return b.load(unit).State != wire.StateReady })
	until(t, "another engine", func() bool { l := b.load(unit); return l.State == wire.StateReady && l.Engine != before })
	if _, err := io.ReadAll(broken.Body); err == nil {
		t.Error("the broken answer ended cleanly")
	}
	if r := b.recorded(brokenID); r.Ending != wire.EndEngineFailed || r.Handed < 1 {
		t.Errorf("%+v", r)
	}

	lost, lostID, err := b.stream(t.Context(), "h1", unit, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Body.Close()
	firstChunk(t, lost)
	p.kill()
	b.untilState(unit, wire.StateUnknown)
	if _, err := io.ReadAll(lost.Body); err == nil {
		t.Error("the lost answer ended cleanly")
	}
	cfg.Join = "" // an identity needs no token
	b.process(cfg)
	b.untilState(unit, wire.StateReady)
	if r := b.recorded(lostID); r.Ending != wire.EndAgentDied || r.Handed < 1 || r.EndedSet != 1 {
		t.Errorf("%+v", r)
	}
	b.whole("h1", unit, 2)
}

// A stopped agent finishes what runs, tells, stops its engines and ships its journal.
func TestAnAgentStopsInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h1", "u1", "--token-time=20ms")
	p := b.process(b.config(b.token("h1")))
	b.untilState(unit, wire.StateReady)
	resp, attempt, err := b.stream(t.Context(), "h1", unit, 40)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := firstChunk(t, resp)
	_ = p.stdin.Close()
	b.untilState(unit, wire.StateDraining)
	refused, _, err := b.stream(t.Context(), "h1", unit, 1)
	if err != nil {
		t.Fatal(err)
	}
	_ = refused.Body.Close()
	if refused.StatusCode != 503 || refused.Header.Get(wire.HeaderRefused) != wire.RefusedDraining {
		t.Errorf("new work: %s %v", refused.Status, refused.Header)
	}
	if rest, err := io.ReadAll(in); err != nil || !strings.HasSuffix(string(rest), "[DONE]\n\n") {
		t.Errorf("running work: %v", err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	if r := b.recorded(attempt); r.Ending != wire.EndComplete || r.Handed != 40 {
		t.Errorf("%+v", r)
	}
}

// Another hub takes over: same engine, whole state again.
func TestTheHubRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h1", "u1")
	b.agent(b.config(b.token("h1")))
	b.untilState(unit, wire.StateReady)
	b.whole("h1", unit, 1)
	until(t, "the block", func() bool { return b.holds(unit, testengine.Block(1)) })
	engineBefore := b.load(unit).Engine
	b.stop()
	b.listener.mu.Lock()
	b.held[unit], b.loads[unit] = nil, wire.Load{}
	b.listener.mu.Unlock()
	b.start()
	b.untilState(unit, wire.StateReady)
	until(t, "the whole state", func() bool { return b.holds(unit, testengine.Block(1)) })
	if got := b.load(unit).Engine; got != engineBefore {
		t.Error("the hub's restart restarted the engine")
	}
	b.recorded(b.whole("h1", unit, 1))
}

// A gateway that starts late, or missed messages, learns the whole state.
func TestALateGatewayKnowsEverything(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h1", "u1")
	b.agent(b.config(b.token("h1")))
	b.untilState(unit, wire.StateReady)
	for range 3 {
		b.whole("h1", unit, 1)
	}
	until(t, "three blocks", func() bool { return b.holds(unit, testengine.Block(3)) })
	router := route.New(clock.System, nil)
	feed, err := route.Follow(router, b.bus, clock.System)
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Stop()
	tokens := make([]uint32, testengine.BlockSize)
	for i := range tokens {
		tokens[i] = 2
	}
	req := route.Request{Model: b.model, Candidates: []route.Candidate{{Unit: unit}}, BlockSize: testengine.BlockSize, PromptTokens: 40,
		Hashes: kvevent.ChainHashes("", tokens, testengine.BlockSize)}
	until(t, "a predicted hit", func() bool {
		booking, err := router.Pick(req)
		if err != nil {
			return false
		}
		booking.Done(route.Cancelled, -1)
		return booking.HitTokens == testengine.BlockSize
	})
	if err := b.bus.Publish(bus.FleetSnapshot, []byte(unit.String())); err != nil {
		t.Fatal(err)
	}
	if err := b.bus.Publish(bus.FleetSnapshot, []byte("junk")); err != nil {
		t.Fatal(err)
	}
	b.whole("h1", unit, 1)
	until(t, "the fourth block", func() bool { return b.holds(unit, testengine.Block(4)) })
	b.listener.mu.Lock()
	defer b.listener.mu.Unlock()
	if b.gaps != 0 || len(b.held[unit]) != 4 {
		t.Errorf("%d gaps, %d blocks", b.gaps, len(b.held[unit]))
	}
}

func TestDesiredStateReachesTheHost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	b.agent(b.config(b.token("h1")))
	until(t, "the link", func() bool { return b.host("h1").Linked })
	unit := b.place("h1", "u1")
	if again := b.place("h1", "u1"); again != unit {
		t.Errorf("the same placement made another unit: %v, %v", unit, again)
	}
	b.untilState(unit, wire.StateReady)
	first := b.load(unit).Engine
	b.exec("UPDATE units SET wanted = 'draining' WHERE id = $1", unit) // by whoever, without a notice
	b.untilState(unit, wire.StateDraining)
	b.exec("UPDATE units SET wanted = 'serving' WHERE id = $1", unit)
	b.untilState(unit, wire.StateReady)
	if b.load(unit).Engine != first {
		t.Error("a drain that was called off restarted the engine")
	}
	if same := b.place("h1", "u1", "--token-time=2ms"); same != unit {
		t.Error("another spec made another unit")
	}
	until(t, "another engine", func() bool { l := b.load(unit); return l.State == wire.StateReady && l.Engine != first })
	// The unit moves to another host: the old one stops it, the new one starts it, under the same id.
	b.agent(b.config(b.token("h2")))
	second := b.load(unit).Engine
	if moved := b.place("h2", "u1", "--token-time=2ms"); moved != unit {
		t.Error("a move made another unit")
	}
	until(t, "the engine on the other host", func() bool { l := b.load(unit); return l.State == wire.StateReady && l.Engine != second })
	until(t, "the first host to be empty", func() bool { return len(b.host("h1").Observed.Units) == 0 })
	b.whole("h2", unit, 1)
}

func TestARemovedHostIsShutOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h1", "u1")
	cfg := b.config(b.token("h1"))
	b.agent(cfg)
	b.untilState(unit, wire.StateReady)
	h := b.host("h1")
	if err := b.hub.RemoveHost(t.Context(), h.ID, tenants.System()); err != nil {
		t.Fatal(err)
	}
	b.untilState(unit, wire.StateUnknown)
	until(t, "the link to stay away", func() bool { return b.hub.Live().Links[h.ID].IsZero() })
	if err := b.hub.RemoveHost(t.Context(), h.ID, tenants.System()); err == nil {
		t.Error("removed twice")
	}
	if id := b.place("h1", "u1"); id == unit {
		t.Error("the name was not free")
	}
}
