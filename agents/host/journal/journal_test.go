package journal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"pgregory.net/rapid"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func open(t testing.TB, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, clock.System, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// hub keeps what was sent, as attempt_journal does: an ended record is never replaced.
type hub map[ids.ID]wire.Attempt

func (h hub) store(_ context.Context, batch []wire.Attempt) error {
	for _, a := range batch {
		if old, ok := h[a.ID]; !ok || old.Ending == wire.EndOpen {
			h[a.ID] = a
		}
	}
	return nil
}

func TestARecordIsShippedWithItsCounters(t *testing.T) {
	j := open(t, t.TempDir())
	defer j.Close()
	id, unit := ids.New(), ids.New()
	r, err := j.Begin(id, unit, wire.KindServe)
	if err != nil {
		t.Fatal(err)
	}
	r.Count(100, 0, 1)
	r.HandedOver()
	r.Count(100, 64, 7)
	r.Count(0, 0, 0) // counters never fall
	if j.Running() != 1 {
		t.Errorf("%d running", j.Running())
	}
	r.End(wire.EndCallerLeft)
	r.End(wire.EndComplete) // only the first counts
	got := hub{}
	if err := j.Flush(context.Background(), got.store); err != nil {
		t.Fatal(err)
	}
	a := got[id]
	if a.Unit != unit || a.Kind != wire.KindServe || a.Prompt != 100 || a.Cached != 64 || a.Generated != 7 || a.HandedOver != 1 ||
		a.Ending != wire.EndCallerLeft || a.StartedMS == 0 || a.EndedMS < a.StartedMS {
		t.Errorf("%+v", a)
	}
	if j.Running() != 0 {
		t.Errorf("%d still running", j.Running())
	}
}

func TestNothingIsDeletedBeforeTheHubHasIt(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for range 2500 {
		r, err := j.Begin(ids.New(), ids.New(), wire.KindProbe)
		if err != nil {
			t.Fatal(err)
		}
		r.End(wire.EndComplete)
	}
	got, calls := hub{}, 0
	err := j.Flush(context.Background(), func(ctx context.Context, batch []wire.Attempt) error {
		if calls++; calls == 2 {
			return errors.New("the hub is away")
		}
		return got.store(ctx, batch)
	})
	if err == nil || len(got) == 2500 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	defer j.Close()
	if err := j.Flush(context.Background(), got.store); err != nil || len(got) != 2500 {
		t.Fatalf("%d of 2500 records after a restart, error %v", len(got), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "seg-*")); len(left) != 0 {
		t.Errorf("shipped segments are still there: %v", left)
	}
}

func TestAFullJournalRefusesAndRecovers(t *testing.T) {
	j := open(t, t.TempDir())
	defer j.Close()
	var all []*Record
	for {
		r, err := j.Begin(ids.New(), ids.New(), wire.KindServe)
		if errors.Is(err, ErrBusy) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if len(all) != Slots {
		t.Fatalf("%d attempts at once", len(all))
	}
	all[0].End(wire.EndComplete)
	if _, err := j.Begin(ids.New(), ids.New(), wire.KindServe); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Begin(ids.New(), ids.New(), "nonsense"); err == nil {
		t.Error("an unknown kind was taken")
	}
}

// A disk that refuses segments keeps the records in their slots until the hub has them.
func TestRecordsSurviveAFullDisk(t *testing.T) {
	j := open(t, t.TempDir())
	defer j.Close()
	j.segs.dir = filepath.Join(j.segs.dir, "gone") // every append fails from here on
	id := ids.New()
	r, _ := j.Begin(id, ids.New(), wire.KindServe)
	r.Count(5, 0, 3)
	r.End(wire.EndComplete)
	got := hub{}
	if err := j.Flush(context.Background(), got.store); err != nil || got[id].Generated != 3 {
		t.Fatalf("%+v, %v", got[id], err)
	}
	if len(j.free) != Slots || len(j.stuck) != 0 {
		t.Errorf("%d free, %d stuck", len(j.free), len(j.stuck))
	}
}

func TestTheDiskBoundDropsTheOldestAndCounts(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	defer j.Close()
	for i := range 3 { // three sealed segments, the first two too large together
		path := filepath.Join(dir, "old"+string(rune('a'+i)))
		if err := os.WriteFile(path, nil, fileMode); err != nil {
			t.Fatal(err)
		}
		j.segs.sealed = append(j.segs.sealed, segment{path, maxDiskBytes/2 - recordBytes})
	}
	r, _ := j.Begin(ids.New(), ids.New(), wire.KindServe)
	r.End(wire.EndComplete)
	if _, _, err := j.segs.take(); err != nil {
		t.Fatal(err)
	}
	if want := int64((maxDiskBytes/2 - recordBytes) / recordBytes); j.Dropped() != want {
		t.Errorf("%d dropped, want %d", j.Dropped(), want)
	}
	if _, err := os.Stat(filepath.Join(dir, "olda")); err == nil {
		t.Error("the oldest file is still there")
	}
}

func TestLongAttemptsAreReportedWhileTheyRun(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := open(t, dir)
		defer j.Close()
		ctx, cancel := context.WithCancel(context.Background())
		got, done := hub{}, make(chan struct{})
		go func() { defer close(done); j.Ship(ctx, got.store) }()
		id := ids.New()
		r, _ := j.Begin(id, ids.New(), wire.KindServe)
		r.Count(10, 0, 4)
		time.Sleep(3 * openAfter)
		synctest.Wait()
		if a := got[id]; a.Ending != wire.EndOpen || a.Generated != 4 || a.EndedMS != 0 {
			t.Errorf("while it runs: %+v", a)
		}
		r.End(wire.EndComplete)
		time.Sleep(2 * shipEvery)
		synctest.Wait()
		if a := got[id]; a.Ending != wire.EndComplete {
			t.Errorf("after its end: %+v", a)
		}
		cancel()
		<-done
	})
}

func TestDamagedRecordsAreSkippedAndCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := wire.Attempt{ID: ids.New(), Unit: ids.New(), Kind: wire.KindGolden, Ending: wire.EndEngineFailed,
			Prompt: rapid.Int64().Draw(t, "prompt"), Cached: rapid.Int64().Draw(t, "cached"),
			Generated: rapid.Int64().Draw(t, "generated"), HandedOver: rapid.Int64().Draw(t, "handed"),
			StartedMS: rapid.Int64().Draw(t, "start"), EndedMS: rapid.Int64().Draw(t, "end")}
		b := encode(a)
		if got, ok := decode(b[:]); !ok || got != a {
			t.Fatalf("%+v came back as %+v", a, got)
		}
		b[rapid.IntRange(0, recordBytes-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if _, ok := decode(b[:]); ok {
			t.Fatal("a damaged record passed")
		}
	})
	dir := t.TempDir()
	whole := encode(wire.Attempt{ID: ids.New(), Unit: ids.New(), Kind: wire.KindServe, Ending: wire.EndComplete})
	torn := append(whole[:], whole[:40]...) // a power cut in the middle of an append
	if err := os.WriteFile(filepath.Join(dir, "seg-0000000000000007.log"), torn, fileMode); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir)
	defer j.Close()
	got := hub{}
	if err := j.Flush(context.Background(), got.store); err != nil || len(got) != 1 || j.Dropped() != 1 {
		t.Fatalf("%d records, %d dropped, %v", len(got), j.Dropped(), err)
	}
}

func BenchmarkAttempt(b *testing.B) {
	j := open(b, b.TempDir())
	defer j.Close()
	id, unit := ids.New(), ids.New()
	b.ReportAllocs()
	for b.Loop() {
		r, err := j.Begin(id, unit, wire.KindServe)
		if err != nil {
			b.Fatal(err)
		}
		r.Count(100, 10, 5)
		r.HandedOver()
		r.End(wire.EndComplete)
	}
}

func TestMain(m *testing.M) {
	if dir, ok := strings.CutPrefix(os.Getenv("JOURNAL_TEST_WRITER"), "dir="); ok {
		write(dir)
		return
	}
	os.Exit(m.Run())
}
