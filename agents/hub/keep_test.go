package hub

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/agents/host"
	"millrace/agents/internal/testengine"
	"millrace/agents/wire"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/tenants"
)

// observedUnit is what the host's agent last told of a unit.
func (b *bench) observedUnit(hostName string, unit ids.ID) wire.UnitObserved {
	for _, u := range b.host(hostName).Observed.Units {
		if u.Unit == unit {
			return u
		}
	}
	return wire.UnitObserved{}
}

// running waits for the unit's process to be told.
func (b *bench) running(hostName string, unit ids.ID) (o wire.UnitObserved) {
	b.t.Helper()
	until(b.t, "the engine's process", func() bool { o = b.observedUnit(hostName, unit); return o.PID != 0 })
	return o
}

func (b *bench) keeper(token string) host.Config {
	cfg := b.config(token)
	cfg.DieWithAgent, cfg.KeepEngines = false, true
	ln, err := net.Listen("tcp", "127.0.0.1:0") // its address stays over a restart
	if err != nil {
		b.t.Fatal(err)
	}
	cfg.DataListen = ln.Addr().String()
	_ = ln.Close()
	return cfg
}

// stopEngines ends what a test leaves: the unit is not desired any more, so the agent stops it.
func (b *bench) stopEngines(hostName string) {
	b.exec(`UPDATE units SET removed_at = now(), name = name || '~' || id WHERE host_id = (SELECT id FROM hosts WHERE name = $1)`, hostName)
	until(b.t, "the engines to be gone", func() bool { return len(b.host(hostName).Observed.Units) == 0 })
}

// The agent is killed while requests run, and started again: the engine never notices, its cache is still its own, what ran
// is closed in the journal, and from the moment the host is linked again nothing is refused.
func TestEnginesOutliveAKilledAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h", "u", strings.Replace(testengine.TokenTime, "50ms", "20ms", 1))
	cfg := b.keeper(b.token("h"))
	p := b.process(cfg)
	b.untilState(unit, wire.StateReady)
	b.whole("h", unit, 2)
	until(t, "the first block", func() bool { return b.holds(unit, testengine.Block(1)) })
	before, incarnation := b.running("h", unit), b.load(unit).Engine

	running, attempt, err := b.stream(t.Context(), "h", unit, 1000)
	if err != nil {
		t.Fatal(err)
	}
	firstChunk(t, running)
	load := b.underLoad("h", unit)
	p.kill()
	_, _ = io.Copy(io.Discard, running.Body)
	_ = running.Body.Close()
	until(t, "the break", func() bool { return b.load(unit).State == wire.StateUnknown })
	cfg.Join = ""
	again := b.process(cfg)
	b.untilState(unit, wire.StateReady)
	load.linked.Store(true)
	until(t, "requests after the restart", func() bool { return load.after.Load() >= 20 })
	load.stop()
	if n := load.refused.Load(); n != 0 {
		t.Errorf("%d requests were refused after the host was linked again", n)
	}
	after := b.running("h", unit)
	if after.PID != before.PID || before.PID == 0 || after.Restarts != 0 || after.StartedMS != before.StartedMS {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if l := b.load(unit); l.Engine != incarnation {
		t.Error("the adopted engine counts as another one: routers forget what it holds")
	}
	until(t, "the block from before", func() bool { return b.holds(unit, testengine.Block(1)) })
	if r := b.recorded(attempt); r.Ending != wire.EndAgentDied || r.Generated == 0 {
		t.Errorf("what ran: %+v", r)
	}
	if r := b.recorded(b.whole("h", unit, 3)); r.Ending != wire.EndComplete || r.Generated != 3 {
		t.Errorf("what ran afterwards: %+v", r)
	}
	b.stopEngines("h")
	_ = again.stdin.Close()
	if err := <-again.ended; err != nil {
		t.Error(err)
	}
}

// load is requests one after the other. Before the host is linked again failures do not count.
type load struct {
	linked         atomic.Bool
	after, refused atomic.Int64
	stop           func()
}

func (b *bench) underLoad(hostName string, unit ids.ID) *load {
	b.t.Helper()
	h := b.host(hostName)
	rt, err := b.gateway().Transport(h.ID, time.Time{}, h.DataURL)
	if err != nil {
		b.t.Fatal(err)
	}
	l := &load{}
	ended := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		client := &http.Client{Transport: rt}
		for {
			select {
			case <-ended:
				return
			default:
			}
			counts := l.linked.Load()
			req, err := http.NewRequest(http.MethodPost, h.DataURL+wire.DataPrefix+unit.String()+engine.ChatPath, strings.NewReader(`{"max_tokens":1}`))
			if err != nil {
				panic(err)
			}
			req.Header.Set(wire.HeaderAttempt, ids.New().String())
			resp, err := client.Do(req)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if !counts {
				continue
			}
			l.after.Add(1)
			if err != nil || resp.StatusCode != http.StatusOK {
				l.refused.Add(1)
			}
		}
	})
	l.stop = sync.OnceFunc(func() { close(ended); work.Wait(); rt.CloseIdleConnections() })
	b.t.Cleanup(l.stop)
	return l
}

// Two hosts measure the way between them, each under its own identity, because their hub named them to each other.
func TestHostsMeasureTheWayBetweenThem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	for _, name := range []string{"x", "y"} {
		cfg := b.config(b.token(name))
		cfg.FabricListen = "127.0.0.1:0"
		b.agent(cfg)
	}
	until(t, "both hosts", func() bool { return b.host("x").Observed.ProbeAddress != "" && b.host("y").Observed.ProbeAddress != "" })
	b.hub.peers.mu.Lock()
	b.hub.peers.read = time.Time{} // it read its list when there was one
	b.hub.peers.mu.Unlock()
	b.exec(`UPDATE hosts SET generation = generation + 1`)
	for _, way := range [][2]string{{"x", "y"}, {"y", "x"}} {
		until(t, "the way from "+way[0], func() bool {
			l := b.host(way[0]).Observed.Links
			return len(l) == 1 && l[0].Peer == b.host(way[1]).ID.String() && l[0].Gbps > 0 && l[0].RTT > 0
		})
	}
}

func TestTurnsCoverEveryWay(t *testing.T) {
	var ring []wire.Peer
	for range 20 {
		ring = append(ring, wire.Peer{Host: ids.New()})
	}
	met := map[ids.ID]bool{}
	for n := range 3 {
		for _, p := range turn(ring, ring[7].Host, n) {
			met[p.Host] = true
		}
	}
	if len(met) != 19 || met[ring[7].Host] {
		t.Errorf("%d of 19 were named in 3 turns", len(met))
	}
	if turn(ring[:1], ring[0].Host, 1) != nil || turn(ring, ids.New(), 0) != nil {
		t.Error("peers of nobody")
	}
}

// Operators read the end of an engine's log, through the host's link; that they did is audited, and nobody else may.
func TestAnEnginesLogIsReadByOperators(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h", "u")
	cfg := b.config(b.token("h"))
	b.agent(cfg)
	b.untilState(unit, wire.StateReady)
	host := b.host("h").ID
	text, err := b.hub.UnitLog(t.Context(), host, unit, 1000, tenants.System())
	if err != nil || !strings.Contains(text, "test engine starts on port") {
		t.Errorf("%q, %v", text, err)
	}
	if text, err = b.hub.UnitLog(t.Context(), host, unit, 4, tenants.System()); err != nil || len(text) != 4 {
		t.Errorf("%q, %v", text, err)
	}
	for _, c := range []struct {
		host, unit ids.ID
		bytes      int
		by         tenants.Actor
		kind       fault.Kind
	}{
		{host, ids.New(), 100, tenants.System(), fault.NotFound},
		{ids.New(), unit, 100, tenants.System(), fault.Unavailable},
		{host, unit, wire.MaxLogBytes + 1, tenants.System(), fault.Invalid},
		{host, unit, 100, tenants.Actor{}, fault.Forbidden},
	} {
		if _, err := b.hub.UnitLog(t.Context(), c.host, c.unit, c.bytes, c.by); fault.Of(err).Kind != c.kind {
			t.Errorf("%v: %v", c, err)
		}
	}
	// A gateway may not: the data plane passes nothing but engines' own paths.
	h := b.host("h")
	rt, err := b.gateway().Transport(h.ID, time.Time{}, h.DataURL)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.CloseIdleConnections()
	resp, err := (&http.Client{Transport: rt}).Get(h.DataURL + wire.LogPrefix + unit.String() + "?bytes=10")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("a gateway reads logs: %s", resp.Status)
	}
}

// A repair moves a row to another host. What the first one's journal says of it is still true, also when nothing of it was
// heard before: its agent may have been killed with the record on disk.
func TestAJournalSpeaksOfWhereItsUnitsWere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h1", "u1")
	b.place("h2", "u2")
	b.place("h3", "u3")
	b.exec(`UPDATE units SET host_id = (SELECT id FROM hosts WHERE name = 'h2') WHERE name = $1`, "u1")
	for host, want := range map[string]bool{"h1": true, "h2": true, "h3": false} {
		own, err := b.hub.unitsOf(t.Context(), b.host(host).ID, map[ids.ID]wire.Attempt{ids.New(): {Unit: unit}})
		if err != nil || own[unit] != want {
			t.Errorf("%s: %v, %v", host, own[unit], err)
		}
	}
}
