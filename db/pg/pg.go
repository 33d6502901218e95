// Package pg runs a private PostgreSQL server for one data folder: it finds or downloads the binaries, makes the cluster,
// starts `postgres` as a child process and stops it again.
//
// It owns the folder it is given: data/ (the cluster), postgres.json (the login, mode 0600) and socket/. It does not own
// what is inside the database (that is db and migrations) and it does not lock the folder: the caller holds a lock that
// proves no other process runs a server here.
//
// Invariants: after Start returns, exactly one postmaster runs on the folder and it is this process's child; when this
// process dies in any way, the kernel tells the postmaster to shut down; whatever an earlier process left behind (a
// running postmaster, orphaned backends, a half-made cluster, stale lock files) is cleared by the next Start. Nobody can
// log in as the superuser over the network: the one login role is millrace, which owns its database.
package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Role is the login role and the name of its database.
const Role = "millrace"

const (
	// startTimeout bounds one start: crash recovery of a large log is the slow part.
	startTimeout = 5 * time.Minute
	// bindAttempts is how many free ports are tried when another program takes the chosen one first.
	bindAttempts = 5
)

// ErrNotRunning says that no server runs for a folder.
var ErrNotRunning = errors.New("no PostgreSQL runs for this data folder")

// Config says which server to run.
type Config struct {
	// Dir is the folder this package owns. Made when missing.
	Dir string
	// Log receives the server's log. nil drops it.
	Log io.Writer
	// Progress is told of slow steps: bytes of a download, or total 0 for steps without a measure. nil is fine.
	Progress func(done, total int64, what string)
	// Port to listen on at 127.0.0.1; 0 takes the last one again when free, else any.
	Port int
	// Major is the version for a new cluster; 0 is any that is new enough. An existing cluster keeps its own.
	Major int
	// Fast trades durability for speed, for tests only: a power cut destroys the cluster.
	Fast bool
	// Cache is where downloaded servers are kept; "" is the user's cache folder.
	Cache string
	// InitSQL runs as the superuser, one statement each, when the cluster is made. For tests.
	InitSQL []string
}

// Server is a running PostgreSQL.
type Server struct {
	dir   folder
	login login
	port  int
	proc  *process
	logs  *tail
}

// Start makes or opens the cluster of c.Dir and runs its server. It returns when the server accepts connections.
// Errors name what a person can do: no binaries to be had, a folder the server's user cannot reach, a port in use.
func Start(ctx context.Context, c Config) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if c.Progress == nil {
		c.Progress = func(int64, int64, string) {}
	}
	dir, err := openFolder(c.Dir)
	if err != nil {
		return nil, err
	}
	if err := dir.clearLeftovers(ctx); err != nil {
		return nil, err
	}
	major, err := dir.major()
	if err != nil {
		return nil, err
	}
	if major == 0 {
		major = c.Major
	}
	bins, err := findBinaries(ctx, major, c.Cache, dir.user, c.Progress)
	if err != nil {
		return nil, err
	}
	login, err := dir.ensureCluster(ctx, bins, c)
	if err != nil {
		return nil, err
	}
	return run(ctx, dir, bins, login, c)
}

// Clear ends whatever an earlier program left running on dir, so that the folder can be removed. The caller holds the lock
// that proves that program dead.
func Clear(ctx context.Context, dir string) error {
	f, err := openFolder(dir)
	if err != nil {
		return err
	}
	return f.clearLeftovers(ctx)
}

// run starts the postmaster, on another port when somebody was quicker to take the one that was free.
func run(ctx context.Context, dir folder, bins binaries, l login, c Config) (*Server, error) {
	c.Progress(0, 0, "starting PostgreSQL "+bins.version)
	for attempt := 1; ; attempt++ {
		port, err := choosePort(c.Port, l.Port)
		if err != nil {
			return nil, err
		}
		s := &Server{dir: dir, login: l, port: port, logs: newTail(c.Log)}
		err = s.launch(ctx, bins, c.Fast)
		if err == nil {
			l.Port = port
			return s, dir.writeLogin(l)
		}
		if c.Port != 0 || attempt == bindAttempts || !s.logs.contains("could not create any TCP/IP sockets") {
			return nil, err
		}
		l.Port = 0
	}
}

// URL is the address for the login role. It holds the password.
func (s *Server) URL() string { return s.login.url(s.dir, s.port) }

// PID is the postmaster's process id.
func (s *Server) PID() int { return s.proc.pid }

// Port is where the server listens on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// Done is closed when the server has ended, whoever ended it.
func (s *Server) Done() <-chan struct{} { return s.proc.done }

// Stop shuts the server down: open transactions are rolled back, connections end, a checkpoint is written. When ctx ends
// first the server is stopped at once, and recovers from its log at the next start.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.proc.stop(ctx); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return nil
}

// Connect gives the URL of the server that already runs for dir, for a command beside a running program. The error is
// ErrNotRunning when there is none.
func Connect(dir string) (string, error) {
	f := folder{root: dir}
	l, err := f.readLogin()
	if errors.Is(err, os.ErrNotExist) {
		return "", ErrNotRunning
	}
	if err != nil {
		return "", err
	}
	pm, err := readPostmaster(filepath.Join(f.data(), "postmaster.pid"))
	if err != nil || pm.status != "ready" || !isPostgres(pm.pid) {
		return "", ErrNotRunning
	}
	return l.url(f, pm.port), nil
}

// choosePort takes the wanted port, else the last one when it is free, else any free one.
func choosePort(wanted, last int) (int, error) {
	candidates := []int{last, 0}
	if wanted != 0 {
		candidates = []int{wanted}
	}
	var failed error
	for _, p := range candidates {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err == nil {
			return l.Addr().(*net.TCPAddr).Port, l.Close()
		}
		failed = err
	}
	return 0, fmt.Errorf("a port for PostgreSQL: %w", failed)
}

// url prefers the socket, which is quicker than TCP, where there is one.
func (l login) url(f folder, port int) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(Role, l.Password), Path: "/" + Role}
	if dir := f.socketDir(); dir != "" && f.socketExists(port) {
		u.RawQuery = url.Values{"host": {dir}, "port": {strconv.Itoa(port)}}.Encode()
		return u.String()
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return u.String()
}
