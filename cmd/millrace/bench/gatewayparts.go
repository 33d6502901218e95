package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"millrace/cmd/millrace/trial"
)

// part is one way to the engine.
type part struct {
	name    string
	address string
	model   string
	pids    []int     // of the processes it needs, the client's apart
	rated   *millrace // not nil: its requests are in this one's books
}

// Names of the parts, in the order they take turns.
const (
	direct   = "direct"
	nginx    = "nginx"
	attached = "millrace"
	agent    = "millrace, agent"
)

// engineHTTP is the kind of engine whose answers come from Go's net/http.
const engineHTTP = "http"

// Times of starting and stopping everything.
const (
	startLimit = 2 * time.Minute
	stopLimit  = 2 * time.Minute
)

// stand is everything that one run measures.
type stand struct {
	dir       string
	program   string // the millrace binary
	nginx     string // the nginx binary; "" = none
	parts     []*part
	millrace  *millrace
	processes []*trial.Process // newest last
}

// startStand starts the engine and everything in front of it. On an error nothing is left running.
func startStand(ctx context.Context, dir, program, kind string) (s *stand, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s = &stand{dir: dir, program: program}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	engine, err := freeAddress()
	if err != nil {
		return nil, err
	}
	args := []string{"raw-upstream", "--listen", engine}
	if kind == engineHTTP {
		args = append(args, "--http")
	}
	raw, err := s.start(ctx, engine, program, args...)
	if err != nil {
		return nil, err
	}
	s.parts = append(s.parts, &part{name: direct, address: engine, model: "raw", pids: []int{raw.PID}})
	if err := s.startNginx(ctx, engine, raw.PID); err != nil {
		return nil, err
	}
	return s, s.startMillrace(ctx, engine, kind, raw.PID)
}

// start runs a program until it listens on address.
func (s *stand) start(ctx context.Context, address, program string, args ...string) (*trial.Process, error) {
	p, err := trial.StartProcess(program, args, nil, nil)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	for !listens(address) {
		select {
		case <-p.Done():
			return nil, fmt.Errorf("%s ended: %s", program, p.Said())
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not listen on %s: %w; it said last: %s", program, address, ctx.Err(), p.Said())
		case <-time.After(readyPoll):
		}
	}
	return p, nil
}

const readyPoll = 10 * time.Millisecond

func listens(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// stop ends everything, newest first.
func (s *stand) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	var errs []error
	for i := len(s.processes) - 1; i >= 0; i-- {
		_, err := s.processes[i].Stop(ctx)
		errs = append(errs, err)
	}
	s.processes = nil
	return errors.Join(errs...)
}

// nginxConfig is what a careful operator would write for token streams: connections to the engine are kept, nothing is
// buffered or logged.
const nginxConfig = `daemon off;
worker_processes %d;
pid %[2]s/nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	upstream engine { server %[3]s; keepalive 256; keepalive_requests 1000000000; }
	server {
		listen %[4]s;
		keepalive_requests 1000000000;
		location / {
			proxy_pass http://engine;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
			proxy_read_timeout 10m;
		}
	}
}
`

// maxNginxWorkers is as many as make sense beside a client and an engine on a small machine.
const maxNginxWorkers = 2

// startNginx adds nginx where it is installed.
func (s *stand) startNginx(ctx context.Context, engine string, enginePID int) error {
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program = "/usr/sbin/nginx"; !isFile(program) { // Debian's place is not on everybody's path
			return nil
		}
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "nginx")
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(nginxConfig, min(runtime.NumCPU(), maxNginxWorkers), dir, engine, address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	p, err := s.start(ctx, address, program, "-p", dir, "-c", config)
	if err != nil {
		return err
	}
	s.nginx = program
	s.parts = append(s.parts, &part{name: nginx, address: address, model: "raw", pids: []int{enginePID, p.PID}})
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// attachedModel is the public name of the engine that is attached.
const attachedModel = "bench/attached"

// startMillrace starts `up` with both ways to an engine: the attached one, and one of its own behind an agent.
func (s *stand) startMillrace(ctx context.Context, engine, kind string, enginePID int) error {
	u, err := trial.StartUp(ctx, trial.UpConfig{Binary: s.program, Data: filepath.Join(s.dir, "data"), ReadyFile: filepath.Join(s.dir, "ready.json"),
		Args: []string{"--replicas", "1", "--engine-flag=--canned=" + kind, "--attach", attachedModel + "=http://" + engine + ",engine=vllm"}})
	if u != nil {
		s.processes = append(s.processes, u.Process)
	}
	if err != nil {
		return err
	}
	base, err := url.Parse(u.Ready.URL)
	if err != nil {
		return err
	}
	s.millrace = &millrace{Ready: u.Ready}
	for _, model := range u.Ready.Models {
		p := &part{name: agent, address: base.Host, model: model, pids: []int{u.PID}, rated: s.millrace}
		if model == attachedModel {
			p.name, p.pids = attached, []int{enginePID, u.PID}
		}
		s.parts = append(s.parts, p)
	}
	slices.SortStableFunc(s.parts[len(s.parts)-len(u.Ready.Models):], func(a, b *part) int { return cmp.Compare(a.name, b.name) })
	return nil
}
