package bus

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"
)

// A log whose disk was full takes no more, even when there is room again, until it is repaired. It has lost nothing.
func TestALogThatCouldNotWriteIsRepaired(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a full disk needs root, to mount a small one")
	}
	dir, ctx := t.TempDir(), t.Context()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("SKIPPED: a full disk needs the right to mount a small one: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	s, b := start(t, EmbeddedConfig{Dir: dir, SyncAlways: true})
	defer s.Stop()
	defer b.Close()
	js := b.JetStream()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: LogStream, Subjects: []string{LogSubjects}, Discard: jetstream.DiscardNew}); err != nil {
		t.Fatal(err)
	}
	publish := func() (uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		ack, err := js.Publish(ctx, "usage.0", make([]byte, 64<<10))
		if err != nil {
			return 0, err
		}
		return ack.Sequence, nil
	}
	first, err := publish()
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "somebody-elses-file")
	fill(t, filler)
	last := first
	for err == nil {
		if n, perr := publish(); perr == nil {
			last = n
		} else {
			err = perr
		}
	}
	t.Logf("a full disk: %v", err)
	if err := b.Repair(ctx); err == nil {
		if _, err := publish(); err == nil {
			t.Error("it writes on a full disk")
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(repairPause) {
		if err = b.Repair(ctx); err == nil {
			var next uint64
			if next, err = publish(); err == nil {
				if next <= last {
					t.Errorf("message %d comes after message %d", next, last)
				}
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not write again: %v", err)
		}
	}
	stream, err := js.Stream(ctx, LogStream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := first; seq <= last; seq++ {
		if _, err := stream.GetMsg(ctx, seq); err != nil {
			t.Errorf("message %d was acknowledged: %v", seq, err)
		}
	}
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	piece := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(piece)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// A log on another machine is its operator's to repair.
func TestRepairIsForTheServerInside(t *testing.T) {
	s, b := start(t, EmbeddedConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: "secret"})
	defer s.Stop()
	defer b.Close()
	other, err := Connect(t.Context(), Config{URL: s.URL(), Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Repair(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.JetStream().AccountInfo(t.Context()); err != nil {
		t.Error(err)
	}
}
