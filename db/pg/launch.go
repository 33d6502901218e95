package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// readyPoll is how often a starting server's status is read.
const readyPoll = 5 * time.Millisecond

// settings are the server's for real use: small memory, full durability.
var settings = []string{
	"max_connections=100",
	"shared_buffers=256MB",
	"fsync=on",
	"full_page_writes=on",
	"synchronous_commit=on",
	"wal_compression=on",
	"checkpoint_timeout=15min",
	"checkpoint_completion_target=0.9",
	"max_wal_size=2GB",
	"jit=off", // costs more than it gives on short statements
	"log_min_messages=warning",
	"log_checkpoints=off",
	"log_lock_waits=on",
}

// fastSettings are for tests: nothing waits for a disk, many packages connect at once.
var fastSettings = []string{
	"max_connections=400",
	"shared_buffers=128MB",
	"fsync=off",
	"full_page_writes=off",
	"synchronous_commit=off",
	"checkpoint_timeout=1h",
	"max_wal_size=512MB",
	"wal_level=minimal",
	"max_wal_senders=0",
	"autovacuum_naptime=5min",
	"jit=off",
	"log_min_messages=fatal",
	"log_checkpoints=off",
}

// launch runs the postmaster and waits until it accepts connections.
func (s *Server) launch(ctx context.Context, bins binaries, fast bool) error {
	f := s.dir
	if err := f.writeAccessRules(); err != nil {
		return err
	}
	socket, err := f.makeSocketDir()
	if err != nil {
		return err
	}
	chosen := settings
	if fast {
		chosen = fastSettings
	}
	cmd := f.command(bins.path("postgres"))
	name, opened, err := f.giveData(cmd, f.data())
	if err != nil {
		return err
	}
	defer opened.Close()
	cmd.Args = append(cmd.Args, "-D", name)
	for _, kv := range append([]string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(s.port),
		"unix_socket_directories=" + socket,
		"unix_socket_permissions=0700",
		"password_encryption=scram-sha-256",
		"logging_collector=off",
		"log_destination=stderr",
		"timezone=UTC",
		"log_timezone=UTC",
	}, chosen...) {
		cmd.Args = append(cmd.Args, "-c", kv)
	}
	cmd.Stdout, cmd.Stderr = s.logs, s.logs
	// SIGINT is the fast shutdown: what we would ask for ourselves.
	if s.proc, err = spawn(cmd, syscall.SIGINT); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s.waitReady(ctx)
}

// makeSocketDir gives the folder for the server's socket, "" when it has none.
func (f folder) makeSocketDir() (string, error) {
	dir := f.socketDir()
	if dir == "" || !f.reachable {
		return "", nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("socket folder: %w", err)
	}
	return dir, f.user.own(dir)
}

// waitReady reads the status that the postmaster keeps in its lock file, as pg_ctl does.
func (s *Server) waitReady(ctx context.Context) error {
	lock := filepath.Join(s.dir.data(), "postmaster.pid")
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if pm, err := readPostmaster(lock); err == nil && pm.pid == s.proc.pid && pm.status == "ready" {
			return nil
		}
		select {
		case <-s.proc.done:
			return fmt.Errorf("PostgreSQL did not start (%v):\n%s", s.proc.err, s.logs)
		case <-ctx.Done():
			stopCtx, cancel := context.WithTimeout(context.Background(), stopGrace)
			defer cancel()
			_ = s.proc.stop(stopCtx)
			return fmt.Errorf("PostgreSQL did not become ready: %w\n%s", ctx.Err(), s.logs)
		case <-tick.C:
		}
	}
}
