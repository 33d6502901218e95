package pg_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/pg"
)

// childDir names the folder of a server that a re-executed test binary runs until it is killed.
const childDir = "PG_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		s, err := pg.Start(context.Background(), pg.Config{Dir: dir, Fast: true})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("ready", s.PID())
		select {}
	}
	os.Exit(m.Run())
}

// reachable is a folder that any user can walk to; t.TempDir's parent is closed to all but its owner.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "pg")
}

func start(t *testing.T, c pg.Config) *pg.Server {
	t.Helper()
	s, err := pg.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *pg.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func queryInt(t *testing.T, url, sql string) int {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	var n int
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func TestRestartKeepsData(t *testing.T) {
	for name, dir := range map[string]string{"reachable": reachable(t), "closed parent": filepath.Join(t.TempDir(), "pg")} {
		t.Run(name, func(t *testing.T) {
			s := start(t, pg.Config{Dir: dir, Fast: true})
			exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
			port := s.Port()
			stop(t, s)

			s = start(t, pg.Config{Dir: dir, Fast: true})
			if n := queryInt(t, s.URL(), "SELECT n FROM kept"); n != 7 {
				t.Fatalf("kept %d, want 7", n)
			}
			if s.Port() != port {
				t.Errorf("port %d, want the last one, %d, again", s.Port(), port)
			}
			fi, err := os.Stat(filepath.Join(dir, "postgres.json"))
			if err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("postgres.json: %v %v, want mode 0600", fi.Mode(), err)
			}
		})
	}
}

func TestLoginRole(t *testing.T) {
	s := start(t, pg.Config{Dir: reachable(t), Fast: true})
	if n := queryInt(t, s.URL(), "SELECT count(*)::int FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolbypassrls AND rolcreaterole"); n != 1 {
		t.Error("the login role must be able to make roles and be no superuser")
	}
	cfg, err := pgx.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.User, cfg.Database = "postgres", "postgres"
	for _, password := range []string{"", "postgres", cfg.Password} {
		cfg.Password = password
		if conn, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
			conn.Close(t.Context())
			t.Errorf("the superuser logged in with password %q", password)
		}
	}
}

func TestConnectBesideRunningServer(t *testing.T) {
	dir := reachable(t)
	if _, err := pg.Connect(dir); !errors.Is(err, pg.ErrNotRunning) {
		t.Errorf("before the first start: %v, want ErrNotRunning", err)
	}
	s := start(t, pg.Config{Dir: dir, Fast: true})
	url, err := pg.Connect(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := queryInt(t, url, "SELECT 1"); n != 1 {
		t.Error("the URL does not work")
	}
	stop(t, s)
	if _, err := pg.Connect(dir); !errors.Is(err, pg.ErrNotRunning) {
		t.Errorf("after the stop: %v, want ErrNotRunning", err)
	}
}

func TestLostLoginFile(t *testing.T) {
	dir := reachable(t)
	s := start(t, pg.Config{Dir: dir, Fast: true})
	old := s.URL()
	exec1(t, old, "CREATE TABLE kept AS SELECT 1 AS n")
	stop(t, s)
	if err := os.Remove(filepath.Join(dir, "postgres.json")); err != nil {
		t.Fatal(err)
	}
	s = start(t, pg.Config{Dir: dir, Fast: true})
	if s.URL() == old {
		t.Error("the password was not renewed")
	}
	if n := queryInt(t, s.URL(), "SELECT n FROM kept"); n != 1 {
		t.Error("the data are gone")
	}
}

func TestBusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = pg.Start(t.Context(), pg.Config{Dir: reachable(t), Fast: true, Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %v, want one that says the port is in use", err)
	}
}

// startChild runs a server under another process of ours.
func startChild(t *testing.T, dir string) (parent *exec.Cmd, postmaster int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "ready ")))
	if err != nil {
		t.Fatalf("child said %q", line)
	}
	return cmd, pid
}

// gone is true for a process that ended, reaped or not.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestKilledParent(t *testing.T) {
	dir := reachable(t)
	parent, postmaster := startChild(t, dir)
	url, err := pg.Connect(dir)
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, url, "CREATE TABLE kept AS SELECT 3 AS n")
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	s := start(t, pg.Config{Dir: dir, Fast: true}) // at once: the kernel's signal may still be on its way
	if n := queryInt(t, s.URL(), "SELECT n FROM kept"); n != 3 {
		t.Errorf("kept %d, want 3", n)
	}
	waitFor(t, "the old postmaster to be gone", func() bool { return gone(postmaster) })
}

// A parent whose death the kernel did not tell of (its postmaster had been adopted): the next start finds and stops it.
func TestOrphanedPostmaster(t *testing.T) {
	dir := reachable(t)
	stop(t, start(t, pg.Config{Dir: dir, Fast: true}))
	orphan := runOrphan(t, dir)
	s := start(t, pg.Config{Dir: dir, Fast: true})
	if s.PID() == orphan.Process.Pid {
		t.Fatal("adopted instead of replaced")
	}
	if err := orphan.Wait(); err != nil {
		t.Errorf("the orphan ended with %v, want an orderly shutdown", err)
	}
}

func TestBackendsOfKilledPostmaster(t *testing.T) {
	dir := reachable(t)
	s := start(t, pg.Config{Dir: dir})
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 5 AS n")
	conn := connect(t, s.URL())
	busy := make(chan error, 1)
	go func() {
		// A loop that never waits does not notice that its postmaster is gone.
		_, err := conn.Exec(context.Background(), "SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 1000) b")
		busy <- err
	}()
	waitFor(t, "the backend to be busy", func() bool {
		return queryInt(t, s.URL(), "SELECT count(*)::int FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT count(*) FROM gen%'") > 0
	})
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	s = start(t, pg.Config{Dir: dir})
	if n := queryInt(t, s.URL(), "SELECT n FROM kept"); n != 5 {
		t.Errorf("kept %d, want 5", n)
	}
	if err := <-busy; err == nil {
		t.Error("the old backend went on")
	}
}

func TestLeftoversDoNotHinder(t *testing.T) {
	dir := reachable(t)
	stop(t, start(t, pg.Config{Dir: dir, Fast: true}))
	// The process id of the lock file now belongs to somebody else, who lives: us.
	lock := fmt.Sprintf("%d\n%s\n1700000000\n5432\n\n127.0.0.1\n  5432001   1\nready   \n", os.Getpid(), filepath.Join(dir, "data"))
	for path, content := range map[string]string{
		"data/postmaster.pid": lock, "data.making/base/1/junk": "half a cluster", "postgres.json.tmp": "{",
		"socket/.s.PGSQL.5432.lock": strconv.Itoa(os.Getpid()),
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, pg.Config{Dir: dir, Fast: true})
	if n := queryInt(t, s.URL(), "SELECT 1"); n != 1 {
		t.Error("no answer")
	}
}

func runOrphan(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd, err := pg.Orphan(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	waitFor(t, "the orphan to be ready", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
		return strings.Contains(string(b), "ready")
	})
	return cmd
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
