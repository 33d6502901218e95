package fleetsim

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/cmd/millrace/trial"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/pg"
	"millrace/internal/clock"
	"millrace/internal/pki"
	"millrace/internal/seal"
)

// fleetTimes are the fleet's times, short. Hubs mark a linked host as alive every 5 s: a host is lost after more than that, and
// replaced more than that later, so that a mass loss is known as one before its first hosts are replaced.
const fleetTimes = "lost=7s;repair=13s;wait=12s;pause=1s;max-pause=5s;drain=10s;settle=1s;fault=3s;think=1s"

const natsToken = "fleetsim"

// sim is a fleet. The database and the bus are this process's; everything else is a process of its own.
type sim struct {
	dir     string
	net     network
	pg      *pg.Server
	nats    *bus.Server
	control *trial.Process
	gateway *trial.Gateway
	hubURL  string
	ports   [4]string // of control, hub, gateway and data links: they stay when processes come back
	desk    trial.Control
	hosts   []*host
	byName  map[string]*host

	org, secret string
	models      map[string]string // id by name
	recipes     map[string]string // id by name
}

// start starts the stores, the control plane and a gateway.
func start(t *testing.T) *sim {
	t.Helper()
	s := &sim{net: newNetwork(t), byName: map[string]*host{}}
	t.Logf("PROVIDERS' NETWORKS ARE %s", strings.ToUpper(s.net.name()))
	var err error
	if s.dir, err = os.MkdirTemp("", "millrace-fleetsim-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	if err := os.Chmod(s.dir, 0o711); err != nil { // the database's user crosses it
		t.Fatal(err)
	}
	s.secrets(t)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	if s.pg, err = pg.Start(ctx, pg.Config{Dir: s.path("postgres"), Fast: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopWithin(t, s.pg.Stop) })
	if s.nats, err = bus.StartEmbedded(ctx, bus.EmbeddedConfig{Dir: s.path("nats"), Listen: "127.0.0.1:0", Token: natsToken}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.nats.Stop)
	d, err := db.Open(ctx, s.pg.URL(), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	d.Close()
	for i, at := range []string{"127.0.0.1", s.net.address(), "127.0.0.1", s.net.address()} {
		ln, err := net.Listen("tcp", at+":0")
		if err != nil {
			t.Fatal(err)
		}
		s.ports[i] = ln.Addr().String()
		_ = ln.Close()
	}
	s.hubURL = "https://" + s.ports[1]
	watch(t, s.path("agents"), s.net)
	s.startControl(t)
	t.Cleanup(func() { stopProcess(t, "control", s.control) })
	s.startGateway(t)
	t.Cleanup(func() { stopProcess(t, "gateway", s.gateway.Process) })
	t.Cleanup(s.endHosts)
	s.openDesk(t)
	return s
}

func (s *sim) path(name string) string { return filepath.Join(s.dir, name) }

func stopWithin(t *testing.T, stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := stop(ctx); err != nil {
		t.Error(err)
	}
}

func stopProcess(t *testing.T, what string, p *trial.Process) {
	t.Helper()
	if p == nil {
		return
	}
	if t.Failed() {
		said := p.Said()
		t.Logf("%s said last:\n%s", what, said[max(0, len(said)-6000):])
	}
	stopWithin(t, func(ctx context.Context) error { _, err := p.Stop(ctx); return err })
}

func (s *sim) endHosts() {
	for _, h := range s.hosts {
		if h.agent != nil {
			_ = h.agent.Kill()
		}
	}
	killEngines(filepath.Join(s.path("agents"), "*"))
}

func (s *sim) secrets(t *testing.T) {
	ca, key, err := pki.NewCA(clock.System)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"master.key": []byte(seal.Generate()), "ca.pem": ca.CertPEM(), "ca.key": key} {
		if err := os.WriteFile(s.path(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *sim) environment() []string {
	return []string{"DATABASE_URL=" + s.pg.URL(), "NATS_URL=" + s.nats.URL(), "NATS_TOKEN=" + natsToken, "MILLRACE_MASTER_KEY_FILE=" + s.path("master.key"),
		"MILLRACE_CA_CERT=" + s.path("ca.pem"), "MILLRACE_CA_KEY=" + s.path("ca.key")}
}

// serve starts a process of the program and gives the file that will say that it serves.
func (s *sim) serve(t *testing.T, roles, listen string, args ...string) (*trial.Process, string) {
	t.Helper()
	ready := s.path(fmt.Sprintf("%s-%d.ready", roles[:3], time.Now().UnixNano()))
	p, err := trial.StartProcess(millrace, append([]string{"serve", "--roles", roles, "--listen", listen, "--data", s.path("data-" + roles[:3]),
		"--metrics-listen", "127.0.0.1:0", "--ready-file", ready, "--drain", "15s"}, args...), s.environment(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, ready
}

func (s *sim) startControl(t *testing.T) {
	t.Helper()
	p, ready := s.serve(t, "control,hub,worker", s.ports[0], "--agent-listen", s.ports[1], "--fleet-times", fleetTimes)
	s.control = p
	s.desk.URL = awaitReady(t, p, ready).URL
}

// awaitReady waits for a process, and gives its address.
func awaitReady(t *testing.T, p *trial.Process, ready string) *trial.Gateway {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	g := &trial.Gateway{Process: p}
	if err := g.AwaitReady(ctx, ready); err != nil {
		t.Fatal(err)
	}
	return g
}

func (s *sim) startGateway(t *testing.T) {
	t.Helper()
	p, ready := s.serve(t, "gateway", s.ports[2], "--data-link-listen", s.ports[3])
	s.gateway = awaitReady(t, p, ready)
}

// command runs the operator's side of the program.
func (s *sim) command(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, millrace, args...)
	cmd.Env = append(os.Environ(), s.environment()...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// do calls the control API, which must take it.
func (s *sim) do(t *testing.T, method, path string, in, out any) {
	t.Helper()
	if err := s.desk.Do(context.Background(), method, path, in, out); err != nil {
		t.Fatal(err)
	}
}

func (s *sim) openDesk(t *testing.T) {
	t.Helper()
	said, err := s.command("operator", "fleet@demo.example", "--token", "fleetsim", "--public-url", s.desk.URL)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	lines := strings.Fields(said)
	s.desk.Token = lines[len(lines)-1]
	s.openShop(t)
}

// get reads from the control API.
func (s *sim) get(path string, out any) error {
	return s.desk.Do(context.Background(), http.MethodGet, path, nil, out)
}
