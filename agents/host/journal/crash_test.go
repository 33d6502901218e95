package journal

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"pgregory.net/rapid"
)

// note is what the writer tells after each step: everything in it has happened.
type note struct {
	ID        ids.ID
	Generated int64
	Handed    int64
	Ending    string
}

// write runs attempts for ever, telling what it did, until it is killed.
func write(dir string) {
	j, err := Open(dir, clock.System, quiet)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say := json.NewEncoder(os.Stdout) // unbuffered: a note is out before the next step begins
	running := map[ids.ID]*Record{}
	endings := []string{wire.EndComplete, wire.EndCallerLeft, wire.EndEngineFailed}
	for step := 0; ; step++ {
		id := ids.New()
		r, err := j.Begin(id, id, wire.KindServe)
		if err != nil {
			panic(err)
		}
		running[id] = r
		_ = say.Encode(note{ID: id})
		for id, r := range running {
			step++
			n := r.slot.generated.Load() + 1
			r.Count(50, 0, n)
			_ = say.Encode(note{ID: id, Generated: n, Handed: n - 1})
			r.HandedOver()
			_ = say.Encode(note{ID: id, Generated: n, Handed: n})
			if step%3 == 0 {
				r.End(endings[step%len(endings)])
				delete(running, id)
				_ = say.Encode(note{ID: id, Generated: n, Handed: n, Ending: endings[step%len(endings)]})
			}
		}
	}
}

// A kill -9 at any moment loses no attempt and no count that had happened.
func TestNothingIsLostByKill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "journal")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		want := map[ids.ID]note{}
		for range rapid.IntRange(1, 3).Draw(t, "kills") {
			killedAfter(t, dir, rapid.IntRange(1, 400).Draw(t, "notes"), want)
		}
		j, err := Open(dir, clock.System, quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		got := hub{}
		if err := j.Flush(context.Background(), got.store); err != nil {
			t.Fatal(err)
		}
		for id, w := range want {
			a, ok := got[id]
			switch {
			case !ok:
				t.Fatalf("attempt %s is gone", id)
			case a.Generated < w.Generated || a.HandedOver < w.Handed || a.HandedOver > a.Generated:
				t.Fatalf("counted %+v, the journal says %+v", w, a)
			case w.Ending != "" && a.Ending != w.Ending:
				t.Fatalf("ended as %s, the journal says %s", w.Ending, a.Ending)
			case a.Ending == wire.EndOpen || a.EndedMS == 0:
				t.Fatalf("left open: %+v", a)
			}
		}
		if j.Running() != 0 || j.Dropped() != 0 {
			t.Fatalf("%d still running, %d dropped", j.Running(), j.Dropped())
		}
	})
}

// killedAfter runs the writer, kills it after n notes and adds what it had told.
func killedAfter(t *rapid.T, dir string, n int, want map[ids.ID]note) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "JOURNAL_TEST_WRITER=dir="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	read := func() bool {
		if !lines.Scan() {
			return false
		}
		var w note
		if err := json.Unmarshal(lines.Bytes(), &w); err == nil { // the last line may be torn
			want[w.ID] = w
		}
		return true
	}
	for range n {
		if !read() {
			t.Fatal("the writer ended by itself")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for read() { // what it told before it died has happened too
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
}
