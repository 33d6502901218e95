package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/cmd/millrace/trial"
)

// Sizes of the small disk that the usage log gets. Below 1 GiB of free space a gateway admits nothing.
const (
	diskBytes   = "size=1400m"
	nearlyBytes = 500 << 20 // of other people's files: 900 MiB are left
)

// smallDisk puts the log on a small disk of its own, between two lives of an `up`.
func smallDisk(t *testing.T, data string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a full disk needs root, to mount a small one")
	}
	dir = filepath.Join(data, "nats")
	moved := dir + ".moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, diskBytes); err != nil {
		t.Skipf("SKIPPED: a full disk needs the right to mount a small one: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	run(t, "cp", "-a", moved+"/.", dir)
	return dir
}

// fill takes up so much of a disk; 0 = all there is.
func fill(t *testing.T, dir string, bytes int) (remove func()) {
	t.Helper()
	path := filepath.Join(dir, "somebody-elses-file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	piece := make([]byte, 1<<20)
	for written := 0; bytes == 0 || written < bytes; written += len(piece) {
		if _, err := f.Write(piece); errors.Is(err, unix.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing unrecorded is served: a gateway whose log runs out of room refuses, says when to come again, and goes on by
// itself when there is room.
func TestDiskFull(t *testing.T) {
	c := config(folder(t))
	u := startUp(t, c)
	stopUp(t, u)
	disk := smallDisk(t, c.Data)
	u = startUp(t, c)
	mine := newCustomer(t, u, "5")
	answers := []trial.Answer{mine.must(t, trial.Ask{Prompt: "room enough", MaxTokens: 20})}
	last := make(chan trial.Answer, 1)
	go func() { last <- mine.chat(trial.Ask{Prompt: "a long one", MaxTokens: 500, Stream: true}) }()
	eventually(t, "it runs", func() bool { return running(mine, t) > 0 })

	remove := fill(t, disk, nearlyBytes)
	var refusal trial.Answer
	eventually(t, "new requests are refused", func() bool {
		refusal = mine.chat(trial.Ask{Prompt: "room?", MaxTokens: 5})
		if refusal.Whole {
			answers = append(answers, refusal)
		}
		return refusal.Status == http.StatusServiceUnavailable
	})
	diskFull(t, refusal)
	long := <-last
	if !long.Whole {
		t.Errorf("what ran was cut: %v", long.Err)
	}
	answers = append(answers, long)
	remove()
	eventually(t, "it serves again", func() bool {
		got := mine.chat(trial.Ask{Prompt: "room again?", MaxTokens: 5})
		if got.Whole {
			answers = append(answers, got)
		}
		return got.Whole
	})
	for _, got := range answers {
		agrees(t, got, mine.bill(t, got.Request))
	}

	// Now to the last byte, under load: there may be no time to refuse. A store that could not write once takes nothing
	// more; it is opened anew when there is room.
	load := steady(t.Context(), mine)
	remove = fill(t, disk, 0)
	eventually(t, "new requests are refused", func() bool {
		return mine.chat(trial.Ask{Prompt: "room?", MaxTokens: 5}).Status == http.StatusServiceUnavailable
	})
	remove()
	eventually(t, "it serves again", func() bool { return mine.chat(trial.Ask{Prompt: "room again?", MaxTokens: 5}).Whole })
	whole := 0
	for _, a := range load.stop() {
		if a.got.Whole {
			whole++
			agrees(t, a.got, mine.bill(t, a.got.Request))
		}
	}
	t.Logf("%d answers came whole around the full disk", whole)
	stopUp(t, u)
	explained(t, c.Data)
}

// diskFull checks what a client is told.
func diskFull(t *testing.T, a trial.Answer) {
	t.Helper()
	var body struct {
		Error struct{ Message, Code string }
	}
	if err := json.Unmarshal(a.Text, &body); err != nil || body.Error.Code != "disk_full" || body.Error.Message == "" || a.Header.Get("Retry-After") == "" {
		t.Errorf("%v: %s, %v", err, a.Text, a.Header)
	}
}
