package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/hub"
	"millrace/api/agentapi"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/pg"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/catalogue"
	"millrace/tenants"
)

const settleTime = 3 * time.Second // between a phase's beginning and its measuring

var quietLog = slog.New(slog.DiscardHandler)

// agentsSide is the control side of the bench, and the process of agents.
type agentsSide struct {
	ends  []func() error // newest last
	db    *db.DB
	bus   *bus.Bus
	ca    *pki.CA
	key   []byte
	hosts []swarmHost
	traffic

	hub     *hub.Hub
	address string
	stopHub func()
	orders  *json.Encoder
}

// traffic is what went over the agents' listener.
type traffic struct{ up, down, dials atomic.Int64 }

func openAgentsSide(ctx context.Context, dir string, agents int) (_ *agentsSide, err error) {
	s := &agentsSide{}
	defer func() {
		if err != nil {
			err = s.close(err)
		}
	}()
	server, err := pg.Start(ctx, pg.Config{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		return server.Stop(stopping)
	})
	nats, err := bus.StartEmbedded(ctx, bus.EmbeddedConfig{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() error { nats.Stop(); return nil })
	if s.bus, err = bus.Connect(ctx, bus.Config{Server: nats, Name: "bench"}); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() error { s.bus.Close(); return nil })
	if s.db, err = db.Open(ctx, server.URL(), db.Options{}); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() error { s.db.Close(); return nil })
	if err := s.db.Migrate(ctx); err != nil {
		return nil, err
	}
	if s.ca, s.key, err = pki.NewCA(clock.System); err != nil {
		return nil, err
	}
	if err := s.fill(ctx, agents); err != nil {
		return nil, err
	}
	return s, s.startHub(ctx)
}

// close ends what was started, the newest first.
func (s *agentsSide) close(err error) error {
	if s.stopHub != nil {
		s.stopHub()
	}
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	return err
}

// fill makes the hosts, as joined, and a unit on each.
func (s *agentsSide) fill(ctx context.Context, agents int) error {
	models := catalogue.New(catalogue.Options{DB: s.db, Bus: s.bus, Clock: clock.System})
	m, err := models.CreateModel(ctx, catalogue.ModelInput{Name: "bench/model", Context: 4096}, tenants.System())
	if err != nil {
		return err
	}
	hosts, units := make([]ids.ID, agents), make([]ids.ID, agents)
	for i := range agents {
		hosts[i], units[i] = ids.New(), ids.New()
		s.hosts = append(s.hosts, swarmHost{hosts[i], units[i]})
	}
	return s.db.InTx(ctx, db.System().Timeout(time.Minute), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO hosts (id, name, joined_at) SELECT id, 'bench-' || id, now() - interval '1 hour' FROM unnest($1::uuid[]) id`, hosts)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO units (id, name, model_id, engine, host_id, upstream_model, spec)
			SELECT unit, 'bench-' || unit, $1, 'sim', host, 'm', '{"Executable": "/opt/engine/bin/serve", "Slots": 64, "Extra": ["--max-model-len", "4096"]}'
			FROM unnest($2::uuid[], $3::uuid[]) AS x (unit, host)`, m.ID, units, hosts)
		return err
	})
}

// startHub runs a hub; the second one listens where the first did.
func (s *agentsSide) startHub(ctx context.Context) error {
	address := s.address
	if address == "" {
		address = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.address = ln.Addr().String()
	h := hub.New(hub.Config{DB: s.db, Bus: s.bus, CA: s.ca, Log: quietLog})
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	hubEnds := make(chan struct{})
	go func() { defer close(hubEnds); _ = h.Run(running) }() // ends with running
	serving, shut := context.WithCancel(context.WithoutCancel(ctx))
	listenerEnds := make(chan struct{})
	go func() { // ends with serving
		defer close(listenerEnds)
		_ = agentapi.Serve(serving, &counted{ln, &s.traffic}, h.Guard(s.ca.Trust().HubServer(s.ca.HubSource("127.0.0.1"))), h.Handler(), quietLog)
	}()
	s.hub = h
	s.stopHub = sync.OnceFunc(func() { cancel(); <-hubEnds; shut(); <-listenerEnds })
	return nil
}

func (s *agentsSide) replaceHub(ctx context.Context) error {
	s.stopHub()
	return s.startHub(ctx)
}

// startSwarm starts the agents, in a process of their own so that their CPU time is told apart.
func (s *agentsSide) startSwarm(ctx context.Context, inside bool) error {
	r, w := io.Pipe()
	ended := make(chan error, 1)
	if inside {
		go func() { ended <- swarm(ctx, r) }()
	} else {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		p := exec.CommandContext(ctx, exe, "bench", "agents", "--swarm")
		p.Stdin, p.Stderr = r, os.Stderr
		go func() { ended <- p.Run() }()
	}
	s.ends = append(s.ends, func() error { _ = w.Close(); return <-ended })
	s.orders = json.NewEncoder(w)
	return s.orders.Encode(swarmOrder{Address: s.address, CA: s.ca.CertPEM(), Key: s.key, Hosts: s.hosts})
}

func (s *agentsSide) tellSwarm(busy bool) error { return s.orders.Encode(swarmLoad{busy}) }

// untilLinked waits until all agents are, and tells how long it took for all and for half of them.
func (s *agentsSide) untilLinked(ctx context.Context, n int) (all, half time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, comeTime)
	defer cancel()
	for began := time.Now(); ; {
		linked := len(s.hub.Live().Links)
		if half == 0 && 2*linked >= n {
			half = time.Since(began)
		}
		if linked >= n {
			return time.Since(began), half, nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return 0, 0, fmt.Errorf("after %s, %d of %d agents are linked", comeTime, linked, n)
		}
	}
}

// change moves the desired state of the first n hosts, and gives the time until all of them have told that they have it.
func (s *agentsSide) change(ctx context.Context, n int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	var of []ids.ID
	for _, h := range s.hosts[:n] {
		of = append(of, h.ID)
	}
	began := time.Now()
	err := s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE units SET upstream_model = 'other', generation = generation + 1 WHERE host_id = ANY($1)`, of)
		return err
	})
	if err == nil {
		err = s.bus.Publish(bus.NoticeCatalogue, nil)
	}
	for behind := 1; err == nil && behind > 0; {
		err = s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, `SELECT count(*) FROM hosts WHERE id = ANY($1) AND observed_generation < generation`, of).Scan(&behind)
		})
		if err == nil && behind > 0 {
			err = pause(ctx, 20*time.Millisecond)
		}
	}
	return time.Since(began), err
}

// agentsMark is a moment's counters, or the difference of two.
type agentsMark struct {
	at              time.Duration
	cpu             cpuUse
	up, down, dials int64
}

var processBegan = time.Now()

func (s *agentsSide) mark() agentsMark {
	return agentsMark{time.Since(processBegan), cpuOf(os.Getpid()), s.up.Load(), s.down.Load(), s.dials.Load()}
}

func (m agentsMark) since(b agentsMark) agentsMark {
	return agentsMark{m.at - b.at, m.cpu.sub(b.cpu), m.up - b.up, m.down - b.down, m.dials - b.dials}
}

func heapMiB() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / (1 << 20)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// counted is a listener that counts.
type counted struct {
	net.Listener
	t *traffic
}

// Accept implements net.Listener.
func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.t.dials.Add(1)
	return &countedConn{conn, c.t}, nil
}

type countedConn struct {
	net.Conn
	t *traffic
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.t.up.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.t.down.Add(int64(n))
	return n, err
}
