package dbtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"millrace/db/pg"
)

// majorEnv asks for a server of one major version, to run a suite on another than the installed one.
const majorEnv = "MILLRACE_PG_MAJOR"

// holderEnv names the server's folder and makes any test binary the holder of its server.
const holderEnv = "MILLRACE_DBTEST_HOLDER"

const (
	// idleTime without any test process ends the server.
	idleTime = 10 * time.Minute
	// idlePoll is how often the holder looks for users and sweeps what killed processes left.
	idlePoll = 10 * time.Second
	// holderStop bounds the shutdown.
	holderStop = 30 * time.Second
)

// A test binary that is started with holderEnv never reaches its tests.
func init() {
	dir := os.Getenv(holderEnv)
	if dir == "" {
		return
	}
	if err := hold(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold runs the server until nobody has used it for a while.
func hold(ctx context.Context, dir string) error {
	own, err := os.OpenFile(filepath.Join(dir, "holder.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer own.Close()
	if err := unix.Flock(int(own.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another holder runs: %w", err)
	}
	if err := dropUnsafe(dir); err != nil {
		return err
	}
	super, err := superuserPassword(dir)
	if err != nil {
		return err
	}
	major, err := serverMajor()
	if err != nil {
		return err
	}
	s, err := pg.Start(ctx, pg.Config{Dir: filepath.Join(dir, "pg"), Log: os.Stderr, Fast: true, Major: major, InitSQL: []string{
		"ALTER ROLE " + pg.Role + " CREATEDB",
		"CREATE ROLE " + superuser + " LOGIN SUPERUSER PASSWORD '" + super + "'",
	}})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), holderStop)
		defer cancel()
		_ = s.Stop(ctx)
	}()
	if err := sweep(ctx, s.URL(), "tmpl_%", func(string) bool { return true }); err != nil {
		return fmt.Errorf("drop old templates: %w", err)
	}
	if err := writeState(dir, state{URL: s.URL(), SuperuserPassword: super, Holder: os.Getpid()}); err != nil {
		return err
	}
	return waitIdle(ctx, dir, s)
}

// serverMajor is the version asked for, 0 for any.
func serverMajor() (int, error) {
	asked := os.Getenv(majorEnv)
	if asked == "" {
		return 0, nil
	}
	major, err := strconv.Atoi(asked)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", majorEnv, err)
	}
	return major, nil
}

// waitIdle returns when no test process has been there for idleTime. It then holds the users' lock until this process
// ends, so that a test that comes now waits and starts anew instead of catching a dying server.
func waitIdle(ctx context.Context, dir string, s *pg.Server) error {
	users, err := os.OpenFile(filepath.Join(dir, "users.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	tick := time.NewTicker(idlePoll)
	defer tick.Stop()
	for idle := time.Duration(0); ; {
		select {
		case <-s.Done():
			return errors.New("the server ended")
		case <-tick.C:
		}
		if err := sweep(ctx, s.URL(), "t\\_%", ownerGone); err != nil {
			fmt.Fprintln(os.Stderr, "sweep:", err)
		}
		if unix.Flock(int(users.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			idle = 0
			continue
		}
		if idle += idlePoll; idle >= idleTime {
			return os.Remove(filepath.Join(dir, "state.json"))
		}
		if err := unix.Flock(int(users.Fd()), unix.LOCK_UN); err != nil {
			return err
		}
	}
}

// dropUnsafe removes a cluster that a power cut may have damaged: it never waits for the disk.
func dropUnsafe(dir string) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "boot_id")
	if old, err := os.ReadFile(path); err == nil && string(old) == string(boot) {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, "pg")); err != nil {
		return err
	}
	return os.WriteFile(path, boot, 0o600)
}

// superuserPassword is made with the cluster and kept beside it.
func superuserPassword(dir string) (string, error) {
	path := filepath.Join(dir, "pg", "superuser")
	if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
		return string(b), nil
	}
	// Without it the cluster is of no use: begin a new one.
	if err := os.RemoveAll(filepath.Join(dir, "pg")); err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, "pg"), 0o711); err != nil {
		return "", err
	}
	password := rand.Text()
	return password, os.WriteFile(path, []byte(password), 0o600)
}

func writeState(dir string, st state) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "state.json.tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, "state.json"))
}

// sweep drops the databases of a name pattern that are of no more use.
func sweep(ctx context.Context, url, pattern string, useless func(name string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT datname::text FROM pg_database WHERE datname LIKE $1", pattern)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if useless(name) {
			if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownerGone reads the process id out of t_<pid>_<serial>.
func ownerGone(name string) bool {
	parts := strings.Split(name, "_")
	if len(parts) != 3 {
		return false
	}
	if _, err := strconv.Atoi(parts[1]); err != nil {
		return false
	}
	_, err := os.Stat("/proc/" + parts[1])
	return errors.Is(err, os.ErrNotExist)
}
