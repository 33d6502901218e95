package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/agents/host/facts"
	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
)

// swarmOrder is what a swarm is started with; a swarmLoad follows for each change of its load.
type swarmOrder struct {
	Address string      `json:"address"`
	CA      []byte      `json:"ca"`
	Key     []byte      `json:"key"` // the swarm makes its own identities
	Hosts   []swarmHost `json:"hosts"`
}

type swarmHost struct {
	ID   ids.ID `json:"id"`
	Unit ids.ID `json:"unit"`
}

type swarmLoad struct {
	Busy bool `json:"busy"`
}

// Times of a swarm's agents: those of agents/host.
const (
	swarmFirstPause = 200 * time.Millisecond
	swarmLastPause  = 10 * time.Second
	swarmSteady     = 10 * time.Second // a link that lasted so long begins the pauses anew
	swarmDials      = 64               // at once at the beginning; later all may
)

// swarm is many agents in one process, until its input ends. They speak as agents/host does, with one unit each and no
// engines: what is measured is what it costs to hear them.
func swarm(ctx context.Context, in io.Reader) error {
	orders := json.NewDecoder(in)
	var o swarmOrder
	if err := orders.Decode(&o); err != nil {
		return fmt.Errorf("the swarm's order: %w", err)
	}
	ca, err := pki.LoadCA(o.CA, o.Key, clock.System)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	first := make(chan struct{}, swarmDials)
	var busy atomic.Bool
	boards := make([]*facts.Board, len(o.Hosts))
	for i, h := range o.Hosts {
		boards[i] = facts.NewBoard()
		m := &member{host: h, address: o.Address, ca: ca, board: boards[i], first: first, number: i}
		work.Go(func() { m.live(ctx) })
	}
	work.Go(func() { look(ctx, boards, o.Hosts, &busy) })
	for {
		var l swarmLoad
		switch err := orders.Decode(&l); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		busy.Store(l.Busy)
	}
}

// look puts every unit's load on its board as often as an agent asks its engine.
func look(ctx context.Context, boards []*facts.Board, hosts []swarmHost, busy *atomic.Bool) {
	round := time.NewTicker(wire.LoadInterval)
	defer round.Stop()
	engine := ids.New()
	for n := 0; ; {
		if busy.Load() {
			n++
		}
		for i, b := range boards {
			b.Load(wire.Load{Unit: hosts[i].Unit, Engine: engine, State: wire.StateReady, Running: n % 64, Waiting: n % 7, QueuedTokens: int64(n),
				KVUsage: float64(n%100) / 100, CacheQueries: int64(1000 * n), CacheHits: int64(500 * n), AtMS: time.Now().UnixMilli()})
		}
		select {
		case <-ctx.Done():
			return
		case <-round.C:
		}
	}
}

// member is one agent.
type member struct {
	host    swarmHost
	address string
	ca      *pki.CA
	board   *facts.Board
	first   chan struct{}
	number  int
	source  *pki.Source

	generation int64
}

// live keeps a link, as an agent does.
func (m *member) live(ctx context.Context) {
	var err error
	if m.source, err = identityOf(m.ca, m.host.ID); err != nil {
		slog.Error("an agent of the swarm has no identity", "error", err)
		return
	}
	pause := swarmFirstPause
	for entered := false; ctx.Err() == nil; entered = true {
		began := time.Now()
		if !entered {
			m.first <- struct{}{}
		}
		err := m.linked(ctx, !entered)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > swarmSteady {
			pause = swarmFirstPause
		}
		slog.Debug("an agent of the swarm has no link", "error", err)
		t := time.NewTimer(pause/2 + rand.N(pause))
		pause = min(2*pause, swarmLastPause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// linked is the life of one link.
func (m *member) linked(ctx context.Context, holds bool) error {
	release := sync.OnceFunc(func() {
		if holds {
			<-m.first
		}
	})
	defer release()
	l, err := link.Dial(ctx, "wss://"+m.address+wire.PathLink, m.ca.Trust().Dial(m.source, pki.Hub), nil, http.NotFoundHandler(), quietLog)
	if err != nil {
		return err
	}
	release()
	defer l.Close()
	client := &http.Client{Transport: l.Transport()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { _ = m.sync(ctx, client) })
	work.Go(func() { _ = m.tell(ctx, client) })
	select {
	case <-ctx.Done():
	case <-l.Done():
	}
	cancel()
	l.Close()
	work.Wait()
	return errors.New("the link broke")
}

func (m *member) sync(ctx context.Context, client *http.Client) error {
	m.generation = -1
	for first := true; ; first = false {
		in := wire.SyncRequest{Generation: m.generation, Observed: m.observed(), Wait: !first}
		body, err := json.Marshal(in)
		if err != nil {
			return err
		}
		var out wire.SyncResponse
		if err := ask(ctx, client, wire.PathSync, strings.NewReader(string(body)), &out); err != nil {
			return err
		}
		m.generation = out.Generation
	}
}

func (m *member) tell(ctx context.Context, client *http.Client) error {
	r, w := io.Pipe()
	var streaming sync.WaitGroup
	defer streaming.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	streaming.Go(func() {
		lines := json.NewEncoder(w)
		_ = w.CloseWithError(m.board.Stream(ctx, func(f wire.Fact) error { return lines.Encode(f) }))
	})
	return ask(ctx, client, wire.PathFacts, r, nil)
}

func ask(ctx context.Context, client *http.Client, path string, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://link"+path, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// observed is a server with eight GPUs.
func (m *member) observed() wire.Observed {
	o := wire.Observed{AgentVersion: "bench", DataURL: fmt.Sprintf("https://10.%d.%d.%d:8444", m.number>>16&255, m.number>>8&255, m.number&255), Simulated: true,
		Inventory: wire.Inventory{Hostname: m.host.ID.String(), CPUs: 192, MemoryBytes: 2 << 40, NUMANodes: 2}}
	for i := range 8 {
		o.GPUs = append(o.GPUs, wire.GPU{Index: i, UUID: fmt.Sprintf("GPU-%s-%d", m.host.ID, i), Model: "NVIDIA B200", Arch: "sm100", MemoryBytes: 180 << 30, NUMA: i / 4})
	}
	o.Units = []wire.UnitObserved{{Unit: m.host.Unit, Generation: m.generation, State: wire.StateReady, PID: 1000}}
	return o
}

func identityOf(ca *pki.CA, host ids.ID) (*pki.Source, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	csr, err := pki.Request(key)
	if err != nil {
		return nil, err
	}
	cert, err := ca.IssueHost(csr, host)
	if err != nil {
		return nil, err
	}
	var pair *tls.Certificate
	if pair, _, err = pki.Identity(cert, key); err != nil {
		return nil, err
	}
	return pki.NewSource(pair, clock.System), nil
}
