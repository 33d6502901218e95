package hub

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/dial"
	"millrace/agents/host"
	"millrace/agents/internal/testengine"
	"millrace/agents/release"
	"millrace/agents/wire"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/tenants"
)

const patience = 60 * time.Second

func TestMain(m *testing.M) {
	testengine.RunIfAsked()
	if text := os.Getenv("HUB_TEST_AGENT"); text != "" {
		runAgent(text)
		return
	}
	if text := os.Getenv("HUB_TEST_COMMAND"); text != "" {
		runCommand(text)
		return
	}
	os.Exit(m.Run())
}

// runAgent is an agent in a process of its own.
func runAgent(config string) {
	var cfg host.Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		panic(err)
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, stop := context.WithCancel(context.Background())
	go func() { // a closed standard input stands for SIGTERM
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := host.Run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// bench is a control side: database, bus, CA, a hub on a real listener, and what a gateway hears.
type bench struct {
	t     *testing.T
	db    *db.DB
	bus   *bus.Bus
	ca    *pki.CA
	past  *clock.Manual // of old, which is the same authority
	old   *pki.CA
	addr  string // of the listener; a second hub takes it over
	model ids.ID
	hub   *Hub
	stop  func()
	*listener
	attached func() []*catalogue.Unit
	programs *release.Folder
}

// listener is a gateway's ears.
type listener struct {
	mu    sync.Mutex
	loads map[ids.ID]wire.Load
	held  map[ids.ID]map[uint64]bool
	seq   map[ids.ID]int64
	gaps  int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, db: dbtest.New(t), listener: &listener{loads: map[ids.ID]wire.Load{}, held: map[ids.ID]map[uint64]bool{}, seq: map[ids.ID]int64{}}}
	b.bus = dbtest.Bus(t)
	b.past = clock.NewManual(time.Now().Add(-60 * 24 * time.Hour))
	var key []byte
	var err error
	if b.old, key, err = pki.NewCA(b.past); err == nil {
		b.ca, err = pki.LoadCA(b.old.CertPEM(), key, clock.System)
	}
	if err != nil {
		t.Fatal(err)
	}
	cat := catalogue.New(catalogue.Options{DB: b.db, Bus: b.bus, Clock: clock.System})
	m, err := cat.CreateModel(t.Context(), catalogue.ModelInput{Name: "acme/test", Context: 4096}, tenants.System())
	if err != nil {
		t.Fatal(err)
	}
	b.model = m.ID
	for _, subject := range []string{bus.FleetLoad, bus.FleetKV} {
		stop, err := b.bus.Subscribe(subject, b.listener.take)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	return b
}

func (l *listener) take(_ string, data []byte) {
	var f wire.Fact
	if err := json.Unmarshal(data, &f); err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Load != nil {
		l.loads[f.Load.Unit] = *f.Load
	}
	if kv := f.KV; kv != nil {
		if !kv.Reset && kv.Seq != l.seq[kv.Unit]+1 {
			l.gaps++
		}
		l.seq[kv.Unit] = kv.Seq
		if kv.Reset || l.held[kv.Unit] == nil {
			l.held[kv.Unit] = map[uint64]bool{}
		}
		for _, h := range kv.Removed {
			delete(l.held[kv.Unit], h)
		}
		for _, h := range kv.Stored {
			l.held[kv.Unit][h] = true
		}
	}
}

func (l *listener) load(unit ids.ID) wire.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loads[unit]
}

func (l *listener) holds(unit ids.ID, block uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[unit][block]
}

// start runs a hub; the second start of a bench listens where the first did.
func (b *bench) start() {
	b.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if b.addr != "" {
		ln.Close()
		until(b.t, "the listener's address to be free", func() bool { ln, err = net.Listen("tcp", b.addr); return err == nil })
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.addr = ln.Addr().String()
	b.hub = New(Config{DB: b.db, Bus: b.bus, CA: b.ca, Log: quiet, Attached: b.attached, Programs: b.programs})
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = b.hub.Run(ctx) })
	srv := &http.Server{Handler: b.hub.Handler(), ReadHeaderTimeout: patience, ErrorLog: slog.NewLogLogger(quiet.Handler(), 0)}
	work.Go(func() {
		_ = srv.Serve(tls.NewListener(ln, b.hub.Guard(b.ca.Trust().HubServer(b.ca.HubSource("127.0.0.1")))))
	})
	b.stop = sync.OnceFunc(func() { cancel(); _ = srv.Close(); work.Wait() })
	b.t.Cleanup(b.stop)
}

func (b *bench) token(name string) string {
	b.t.Helper()
	token, err := b.hub.JoinToken(b.t.Context(), name, tenants.System())
	if err != nil {
		b.t.Fatal(err)
	}
	return token
}

// place puts a test engine on a host.
func (b *bench) place(hostName, unit string, flags ...string) ids.ID {
	b.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	id, err := b.hub.PlaceSimple(b.t.Context(), Placement{Host: hostName, Name: unit, Model: b.model, Engine: engine.Sim, Upstream: "m",
		Spec: engine.Spec{Executable: exe, Extra: flags}}, tenants.System())
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *bench) config(token string) host.Config {
	return host.Config{Hub: "https://" + b.addr, Join: token, Data: b.t.TempDir(), DataListen: "127.0.0.1:0", DieWithAgent: true,
		Drain: 5 * time.Second, Version: "test"}
}

// agent runs one in this process.
func (b *bench) agent(cfg host.Config) (stop func()) {
	b.t.Helper()
	cfg.Log = quiet
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("agent: %v", err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// process runs an agent that can be killed.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan error
}

func (b *bench) process(cfg host.Config) *process {
	b.t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.execute(os.Args[0], "HUB_TEST_AGENT="+string(text))
}

// execute runs this test's program as what the environment says.
func (b *bench) execute(program, env string) *process {
	b.t.Helper()
	p := &process{cmd: exec.Command(program), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), env)
	var err error
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	b.t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

func (b *bench) untilState(unit ids.ID, state string) {
	b.t.Helper()
	until(b.t, "state "+state, func() bool { return b.load(unit).State == state })
}

func (b *bench) host(name string) Host {
	b.t.Helper()
	hosts, err := b.hub.Hosts(b.t.Context(), tenants.System())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, h := range hosts {
		if h.Name == name {
			return h
		}
	}
	return Host{} // not yet
}

// gateway dials hosts as one does.
func (b *bench) gateway() *dial.Hosts {
	return dial.New(b.ca.Trust(), b.ca.GatewaySource("test"), func(h ids.ID) (net.Conn, error) { return b.hub.DialLink(h) })
}

// stream asks a unit for n tokens and gives the answer as it comes.
func (b *bench) stream(ctx context.Context, hostName string, unit ids.ID, n int) (*http.Response, ids.ID, error) {
	b.t.Helper()
	h := b.host(hostName)
	rt, err := b.gateway().Transport(h.ID, time.Time{}, h.DataURL)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(rt.CloseIdleConnections)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.DataURL+wire.DataPrefix+unit.String()+engine.ChatPath,
		strings.NewReader(fmt.Sprintf(`{"stream":true,"max_tokens":%d}`, n)))
	if err != nil {
		b.t.Fatal(err)
	}
	attempt := ids.New()
	req.Header.Set(wire.HeaderAttempt, attempt.String())
	resp, err := (&http.Client{Transport: rt}).Do(req)
	return resp, attempt, err
}

// whole streams to the end.
func (b *bench) whole(hostName string, unit ids.ID, n int) (attempt ids.ID) {
	b.t.Helper()
	resp, attempt, err := b.stream(b.t.Context(), hostName, unit, n)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.HasSuffix(string(text), "[DONE]\n\n") {
		b.t.Fatalf("%s, %v: %q", resp.Status, err, text)
	}
	return attempt
}

// firstChunk waits for one.
func firstChunk(t *testing.T, resp *http.Response) *bufio.Reader {
	t.Helper()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data:") {
		t.Fatalf("%q, %v", line, err)
	}
	return in
}

// row is a stored journal record.
type row struct {
	Host                                ids.ID
	Unit                                ids.ID
	Kind, Ending                        string
	Prompt, Generated, Handed, EndedSet int64
}

// recorded waits for an attempt's record and gives it.
func (b *bench) recorded(attempt ids.ID) (r row) {
	b.t.Helper()
	until(b.t, "the journal's record", func() bool {
		err := b.db.InTx(b.t.Context(), db.System(), func(tx pgx.Tx) error {
			return tx.QueryRow(b.t.Context(), `SELECT host_id, unit_id, kind, ending, prompt, generated, handed_over, (ended_at IS NOT NULL)::int
				FROM attempt_journal WHERE attempt_id = $1 AND ending <> 'open'`, attempt).
				Scan(&r.Host, &r.Unit, &r.Kind, &r.Ending, &r.Prompt, &r.Generated, &r.Handed, &r.EndedSet)
		})
		return err == nil
	})
	return r
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	err := b.db.InTx(b.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(b.t.Context(), sql, args...)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}
