package credit_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/db"
	"millrace/internal/ids"
)

const childEnv = "MILLRACE_TEST_GATEWAY" // URL, lock folder, org, project and key, when this process is the gateway

// silent is a bus without anybody on it.
type silent struct{}

func (silent) Publish(string, []byte) error                           { return nil }
func (silent) Subscribe(string, func(string, []byte)) (func(), error) { return func() {}, nil }

// TestGatewayProcess is the gateway of the tests below, in a process of its own: it holds one nano-dollar again and again
// and says how that went.
func TestGatewayProcess(t *testing.T) {
	fields := strings.Fields(os.Getenv(childEnv))
	if len(fields) != 5 {
		t.Skip("runs in a child process only")
	}
	d, err := db.Open(t.Context(), fields[0], db.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	a, err := credit.Open(t.Context(), credit.Config{DB: d, Bus: silent{}, Process: "child", LockDir: fields[1],
		Validity: 3 * time.Second, Heartbeat: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var list [3]ids.ID
	for i := range list {
		if list[i], err = ids.Parse("", fields[i+2]); err != nil {
			t.Fatal(err)
		}
	}
	p := credit.Payer{Org: list[0], Project: list[1], Key: list[2], TimeZone: "UTC"}
	for parent := os.Getppid(); os.Getppid() == parent; time.Sleep(5 * time.Millisecond) {
		began := time.Now()
		if hold, err := a.Hold(t.Context(), p, 1); err == nil {
			hold.Settle(0)
			fmt.Printf("\nheld %s %d\n", hold.Epoch(), began.UnixMilli())
		} else {
			fmt.Printf("\nrefused %s %d\n", a.Epoch(), began.UnixMilli())
		}
	}
}

type said struct {
	held  bool
	epoch ids.ID
	at    time.Time // when the request began
}

// child starts a gateway in its own process and gives what it says.
func (h *house) child(t *testing.T, p credit.Payer) (*os.Process, <-chan said) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestGatewayProcess$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s %s", childEnv, h.url, h.locks, p.Org, p.Project, p.Key))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan said, 100_000)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			var verb, epoch string
			var ms int64
			if n, _ := fmt.Sscan(scanner.Text(), &verb, &epoch, &ms); n == 3 {
				id, _ := ids.Parse("", epoch)
				lines <- said{verb == "held", id, time.UnixMilli(ms)}
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	return cmd.Process, lines
}

// next waits for something the child says.
func next(t *testing.T, lines <-chan said, what string, ok func(said) bool) said {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case s, open := <-lines:
			if !open {
				t.Fatalf("the child ended before %s", what)
			}
			if ok(s) {
				return s
			}
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestAKilledProcessIsProvenDead(t *testing.T) {
	t.Parallel()
	h := open(t)
	process, lines := h.child(t, h.org(t, usd))
	epoch := next(t, lines, "a hold", func(s said) bool { return s.held }).epoch
	dataLock := query[string](h, t, "select data_lock from gateway_epochs where id = $1", epoch)
	if credit.ProvenDead(dataLock) {
		t.Fatal("a living process is declared dead")
	}
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the death is proven", func() bool { return credit.ProvenDead(dataLock) })
}

// Paused past its validity and fenced meanwhile, a process admits nothing in its old epoch when it goes on.
func TestAPausedProcessWakesUpPoor(t *testing.T) {
	t.Parallel()
	h := open(t)
	process, lines := h.child(t, h.org(t, usd))
	first := next(t, lines, "a hold", func(s said) bool { return s.held }).epoch
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second) // the pause itself: longer than the validity of 3 s
	h.system(t, func(tx pgx.Tx) error {
		if _, err := credit.ReturnRest(t.Context(), tx, first); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "update gateway_epochs set fenced_at = now() where id = $1", first)
		return err
	})
	resumed := time.Now()
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	next(t, lines, "a hold in a new epoch", func(s said) bool {
		if s.held && s.epoch == first && !s.at.Before(resumed) {
			t.Fatalf("admitted in the old epoch %v after it went on", s.at.Sub(resumed))
		}
		return s.held && s.epoch != first
	})
	if rest := query[int64](h, t, "select coalesce(sum(allotted_nano - used_nano - returned_nano), 0)::bigint from allotments where epoch_id = $1", first); rest != 0 {
		t.Errorf("%d are outstanding after the fence", rest)
	}
	h.check(t, true)
}
