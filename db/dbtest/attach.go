package dbtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"
)

const (
	// layout changes when servers of an older dbtest are of no use to a newer one.
	layout = 1
	// adminConns serve the CREATE and DROP of parallel tests.
	adminConns = 4
	// shmBytes must be free in memory for the server to live there: some hundred databases of 10 MB and the log.
	shmBytes = 6 << 30
	// attachPoll is how often a starting server is looked at.
	attachPoll = 20 * time.Millisecond
)

// state is what the holder writes for the processes that use its server.
type state struct {
	URL               string `json:"url"`
	SuperuserPassword string `json:"superuser_password"`
	Holder            int    `json:"holder"` // process id
}

// superuser is the login that tests use to look behind row-level security.
const superuser = "dbtest_superuser"

// server is the shared server as one process uses it.
type server struct {
	state
	dir   string
	admin *pgxpool.Pool
	users *os.File // a shared lock on it keeps the server running

	mu   sync.Mutex
	made string // the template of this process's migrations, once known
}

var (
	attachMu sync.Mutex
	attached *server
)

// attachOnce gives the process's one use of the server. A failure is not kept: the next test tries again.
func attachOnce(ctx context.Context) (*server, error) {
	attachMu.Lock()
	defer attachMu.Unlock()
	if attached != nil {
		return attached, nil
	}
	s, err := attach(ctx)
	if err == nil {
		attached = s
	}
	return s, err
}

// home is the folder of the server: one per user, and per choice of binaries or version, so that the suite can run on another
// version side by side.
func home() (string, error) {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %s %s", layout, os.Getenv("PG_BIN"), os.Getenv(majorEnv))
	dir := filepath.Join(roomiest(), fmt.Sprintf("millrace-dbtest-%d-%08x", os.Geteuid(), h.Sum32()))
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || !fi.IsDir() || int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s belongs to somebody else", dir)
	}
	return dir, nil
}

// roomiest is where to keep the server: in memory where there is plenty, because a copied database is five hundred small
// files and a disk's file system takes three times as long over them; else the folder for temporary files.
func roomiest() string {
	const shm = "/dev/shm"
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") == "" && unix.Statfs(shm, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= shmBytes {
		return shm
	}
	return os.TempDir()
}

// attach finds the running server or starts a holder for one.
func attach(ctx context.Context) (*server, error) {
	dir, err := home()
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	// First of all: from here on the holder does not end for want of users.
	if s.users, err = lock(ctx, filepath.Join(dir, "users.lock"), unix.LOCK_SH); err != nil {
		return nil, err
	}
	starting, err := lock(ctx, filepath.Join(dir, "start.lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer starting.Close()
	for {
		if !held(filepath.Join(dir, "holder.lock")) {
			if err := startHolder(ctx, dir); err != nil {
				return nil, err
			}
		}
		// A holder that has just begun may not have replaced its predecessor's state yet: ask the server itself.
		if err = s.open(ctx); err == nil {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(attachPoll):
		}
	}
}

// open reads the state and connects.
func (s *server) open(ctx context.Context) error {
	b, err := os.ReadFile(filepath.Join(s.dir, "state.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.state); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return err
	}
	cfg.MaxConns = adminConns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return err
	}
	s.admin = pool
	return nil
}

// startHolder runs this test binary again as the holder and waits until its server is there. The holder is in a session
// of its own and has none of our pipes, so that neither ctrl-C nor `go test` waiting for output concerns it.
func startHolder(ctx context.Context, dir string) error {
	logPath := filepath.Join(dir, "holder.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, "state.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // outlives us on purpose: the holder does too
	for {
		if _, err := os.Stat(filepath.Join(dir, "state.json")); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(logPath)
			return fmt.Errorf("the server's holder ended (%v): %s", err, said)
		case <-ctx.Done():
			return fmt.Errorf("the server did not start: %w", ctx.Err())
		case <-time.After(attachPoll):
		}
	}
}

// address is the login role's URL of a database.
func (s *server) address(name string) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		panic(err) // we wrote it
	}
	u.Path = "/" + name
	return u.String()
}

func (s *server) asSuperuser(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	u.User = url.UserPassword(superuser, s.SuperuserPassword)
	return u.String(), nil
}

// lock takes a lock that the kernel drops when this process dies.
func lock(ctx context.Context, path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("waiting for %s: %w", path, errors.Join(ctx.Err(), err))
		case <-time.After(attachPoll):
		}
	}
}

// held reports whether a process has the lock exclusively.
func held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
}
