package agentcmd

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/agents/wire"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if parent := os.Getenv("AGENTCMD_TEST_PARENT"); parent != "" {
		pid, err := strconv.Atoi(parent)
		if err != nil {
			panic(err)
		}
		c := Command{Hub: "https://127.0.0.1:1", Join: wire.NewJoinToken(make([]byte, 32)).String(), Data: os.Getenv("AGENTCMD_TEST_DATA"), ParentDeath: pid}
		if err := c.Run(context.Background()); err != nil { // waits for a hub that is not there
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// A child lives as long as its parent, and not a moment longer: here the parent is somebody else from the start.
func TestAChildDiesWithItsParent(t *testing.T) {
	child := func(parent int) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "AGENTCMD_TEST_PARENT="+strconv.Itoa(parent), "AGENTCMD_TEST_DATA="+t.TempDir())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	lives, dies := child(os.Getpid()), child(os.Getppid())
	dead := make(chan error, 1)
	go func() { dead <- dies.Wait() }()
	select {
	case err := <-dead:
		if err == nil {
			t.Error("an orphan ended as if all were well")
		}
	case <-time.After(patience):
		t.Fatal("an orphan lives on")
	}
	if err := lives.Process.Kill(); err != nil {
		t.Errorf("the other child was gone too: %v", err)
	}
	if err := lives.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the other child ended by itself: %v", err)
	}
}

func TestTheHubsAddressIsChecked(t *testing.T) {
	for _, hub := range []string{"", "http://hub:1", "hub:1", "https://"} {
		c := Command{Hub: hub, Data: t.TempDir()}
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--hub") {
			t.Errorf("%q: %v", hub, err)
		}
	}
}
