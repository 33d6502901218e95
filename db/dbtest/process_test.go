package dbtest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/db/dbtest"
)

// userEnv turns TestUse into the test of a process of its own.
const userEnv = "DBTEST_TEST_USER"

func TestUse(t *testing.T) {
	if os.Getenv(userEnv) == "" {
		t.Skip("runs in processes of its own")
	}
	if err := dbtest.New(t).Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Several test processes on a machine without a server start one; when its holder is killed the next ones start another.
func TestServerIsSharedAndReplaced(t *testing.T) {
	dir := t.TempDir()
	use := func() {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				cmd := exec.Command(os.Args[0], "-test.run=^TestUse$", "-test.v")
				cmd.Env = append(os.Environ(), userEnv+"=1", "TMPDIR="+dir)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		all.Wait()
	}
	kill := func() (holder int) {
		homes, err := filepath.Glob(filepath.Join(dir, "millrace-dbtest-*"))
		if err != nil || len(homes) != 1 {
			t.Fatalf("servers %v, %v; want one", homes, err)
		}
		b, err := os.ReadFile(filepath.Join(homes[0], "state.json"))
		if err != nil {
			t.Fatal(err)
		}
		var st struct{ Holder int }
		if err := json.Unmarshal(b, &st); err != nil || st.Holder == 0 {
			t.Fatalf("state %s: %v", b, err)
		}
		if err := syscall.Kill(st.Holder, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return st.Holder
	}
	use()
	first := kill()
	use()
	if second := kill(); second == first {
		t.Error("a killed holder was not replaced")
	}
	// The server dies with its holder; its folder can only be removed after it.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left, _ := filepath.Glob(filepath.Join(dir, "millrace-dbtest-*", "pg", "data", "postmaster.pid"))
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server outlived its holder: %v", left)
		}
	}
}
