package bus

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// crashDir names the folder in which a re-executed test binary publishes until it is killed.
const crashDir = "BUS_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		publishForEver(dir)
	}
	os.Exit(m.Run())
}

// publishForEver prints the number of each message when it is acknowledged.
func publishForEver(dir string) {
	ctx := context.Background()
	s, err := StartEmbedded(ctx, EmbeddedConfig{Dir: dir, SyncAlways: true})
	if err == nil {
		var b *Bus
		if b, err = Connect(ctx, Config{Server: s}); err == nil {
			_, err = b.JetStream().CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: LogStream, Subjects: []string{LogSubjects}})
			for err == nil {
				var ack *jetstream.PubAck
				if ack, err = b.JetStream().Publish(ctx, "usage.0", make([]byte, 800)); err == nil {
					fmt.Println(ack.Sequence)
				}
			}
		}
	}
	fmt.Println("error", err)
	os.Exit(1)
}

func TestKilledServerKeepsAcknowledgedMessages(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acked uint64
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if acked, err = strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64); err != nil {
				t.Fatalf("round %d: child said %q", round, lines.Text())
			}
			if n == 200 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()

		s, b := start(t, EmbeddedConfig{Dir: dir, SyncAlways: true})
		stream, err := b.JetStream().Stream(t.Context(), LogStream)
		if err != nil {
			t.Fatal(err)
		}
		if last := stream.CachedInfo().State.LastSeq; last < acked {
			t.Errorf("round %d: %d was acknowledged, the log ends at %d", round, acked, last)
		}
		b.Close()
		s.Stop()
	}
}

// A reader that never returns, on its own connection, while the log goes on.
func TestSlowReaderDoesNotHurtTheLog(t *testing.T) {
	s, log := start(t, EmbeddedConfig{Dir: t.TempDir()})
	defer s.Stop()
	defer log.Close()
	fanout, err := Connect(t.Context(), Config{Server: s, Name: "fan-out"})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	defer fanout.Close()
	defer close(release)
	if _, err := fanout.Subscribe(FleetKV, func(string, []byte) { <-release }); err != nil {
		t.Fatal(err)
	}
	if err := fanout.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := log.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: LogStream, Subjects: []string{LogSubjects}}); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 1<<20)
	for range 2 * pendingBytes / len(big) {
		if err := log.Publish(FleetKV, big); err != nil {
			t.Fatal(err)
		}
		if _, err := log.JetStream().Publish(t.Context(), "usage.0", []byte("event")); err != nil {
			t.Fatalf("the log: %v", err)
		}
	}
}
