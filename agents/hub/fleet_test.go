package hub

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/serving/catalogue"
	"millrace/tenants"

	"github.com/jackc/pgx/v5"
)

func newRequest(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
}

// logWatch notices a word in the log.
type logWatch struct {
	word  string
	found atomic.Bool
}

func newLogWatch(word string) *logWatch { return &logWatch{word: word} }

func (l *logWatch) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
func (l *logWatch) seen() bool           { return l.found.Load() }
func (l *logWatch) Write(p []byte) (int, error) {
	if strings.Contains(string(p), l.word) {
		l.found.Store(true)
	}
	return len(p), nil
}

// memory is a bus that keeps what is published.
type memory struct {
	mu    sync.Mutex
	facts []wire.Fact
}

func (m *memory) Publish(_ string, data []byte) error {
	var f wire.Fact
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.facts = append(m.facts, f)
	return nil
}

func (m *memory) Subscribe(string, func(string, []byte)) (func(), error) { return func() {}, nil }

func (m *memory) take() []wire.Fact {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.facts
	m.facts = nil
	return out
}

func newTestFleet() (*fleet, *memory, *clock.Manual) {
	m, c := &memory{}, clock.NewManual(time.Unix(1_800_000_000, 0))
	return newFleet(m, c, quiet), m, c
}

func TestAnotherHubsUnitIsNotCalledUnknown(t *testing.T) {
	f, m, c := newTestFleet()
	host, mine, theirs := ids.New(), ids.New(), ids.New()
	for _, unit := range []ids.ID{mine, theirs} {
		l := wire.Load{Unit: unit, State: wire.StateReady, AtMS: 1}
		f.take(host, wire.Fact{Load: &l})
		text, _ := json.Marshal(wire.Fact{Load: &l})
		c.Advance(time.Millisecond)
		f.heard("", text) // our own echo
	}
	c.Advance(time.Second)
	text, _ := json.Marshal(wire.Fact{Load: &wire.Load{Unit: theirs, State: wire.StateReady, AtMS: 2}})
	f.heard("", text) // the host has linked to another hub, which tells of this unit
	m.take()
	f.lost(host)
	var unknown []ids.ID
	for _, fact := range m.take() {
		if fact.Load.State == wire.StateUnknown {
			unknown = append(unknown, fact.Load.Unit)
		}
	}
	if len(unknown) != 1 || unknown[0] != mine {
		t.Errorf("called unknown: %v, want %v", unknown, mine)
	}
}

func TestASilentHostsUnitsAreUnknown(t *testing.T) {
	f, m, c := newTestFleet()
	unit := ids.New()
	f.take(ids.New(), wire.Fact{Load: &wire.Load{Unit: unit, State: wire.StateReady}})
	m.take()
	c.Advance(wire.HostLostAfter - time.Millisecond)
	if f.silent(c.Now()); len(m.take()) != 0 {
		t.Error("called unknown too early")
	}
	c.Advance(time.Millisecond)
	f.silent(c.Now())
	if got := m.take(); len(got) != 1 || got[0].Load.State != wire.StateUnknown {
		t.Errorf("%+v", got)
	}
	if f.silent(c.Now()); len(m.take()) != 0 {
		t.Error("told twice")
	}
}

// However many gateways ask, a whole state goes out once a second, and the last who asked gets one too.
func TestWholeStatesAreBounded(t *testing.T) {
	f, m, c := newTestFleet()
	unit, engine := ids.New(), ids.New()
	f.take(ids.New(), wire.Fact{Load: &wire.Load{Unit: unit, Engine: engine, State: wire.StateReady}})
	f.take(ids.New(), wire.Fact{KV: &wire.KV{Unit: unit, Engine: engine, Seq: 1, Stored: []uint64{9}}}) // its beginning is missing
	f.take(ids.New(), wire.Fact{KV: &wire.KV{Unit: unit, Engine: engine, Seq: 7, Reset: true, Stored: []uint64{1, 2}}})
	f.take(ids.New(), wire.Fact{KV: &wire.KV{Unit: unit, Engine: engine, Seq: 8, Stored: []uint64{3}, Removed: []uint64{1}}})
	m.take()
	resets := func() (n int) {
		for _, fact := range m.take() {
			if fact.KV != nil && fact.KV.Reset {
				n++
				if len(fact.KV.Stored) != 2 || fact.KV.Seq < 3 {
					t.Errorf("%+v", fact.KV)
				}
			}
		}
		return n
	}
	for range 20 {
		f.asked("", nil)
	}
	if n := resets(); n != 1 {
		t.Errorf("%d whole states at once", n)
	}
	if f.silent(c.Now()); resets() != 0 {
		t.Error("again too early")
	}
	c.Advance(snapshotEvery)
	if f.silent(c.Now()); resets() != 1 {
		t.Error("those who asked too early got nothing")
	}
	c.Advance(snapshotEvery)
	if f.silent(c.Now()); resets() != 0 {
		t.Error("nobody asked")
	}
}

func TestJournalRecordsAreStoredOnceAndForGood(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h", "u")
	host := b.host("h").ID
	store := func(batch ...wire.Attempt) {
		t.Helper()
		text, err := json.Marshal(batch)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.PathJournal, strings.NewReader(string(text)))
		if err := b.hub.store(r, &hostLink{id: host}); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().UnixMilli()
	a := wire.Attempt{ID: ids.New(), Unit: unit, Kind: wire.KindServe, Prompt: 5, Generated: 2, HandedOver: 2, Ending: wire.EndOpen, StartedMS: now}
	store(a)
	b.place("other", "u") // the unit moves while the attempt runs
	done := a
	done.Generated, done.HandedOver, done.Ending, done.EndedMS = 9, 8, wire.EndComplete, now+5
	bad := done
	bad.ID, bad.Prompt = ids.New(), -1
	store(a, done, done, bad) // twice in one batch, and one that cannot be
	store(done)
	store(a) // a snapshot that arrives late
	other := done
	other.Generated = 1000
	store(other) // an ended record is never changed
	if r := b.recorded(a.ID); r.Generated != 9 || r.Handed != 8 || r.Ending != wire.EndComplete || r.EndedSet != 1 {
		t.Errorf("%+v", r)
	}
	var n int
	_ = b.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), "SELECT count(*) FROM attempt_journal").Scan(&n)
	})
	if n != 1 {
		t.Errorf("%d records", n)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.PathJournal, strings.NewReader("[{"))
	if err := b.hub.store(r, &hostLink{id: host}); err == nil {
		t.Error("junk was taken")
	}
}

// An attached engine is told ready after a token, not ready when it stops answering, and ready again.
func TestAttachedEnginesAreProbed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var down atomic.Bool
	var tokens, keyed atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer sk-up" {
			keyed.Add(1)
		}
		switch {
		case down.Load():
			w.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == "/metrics":
			_, _ = w.Write([]byte("vllm:num_requests_running 4\n"))
		case r.Method == http.MethodPost:
			tokens.Add(1)
			_, _ = w.Write([]byte(`{"choices":[{}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`))
		}
	}))
	t.Cleanup(srv.Close)
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	cat := catalogue.New(catalogue.Options{DB: b.db, Bus: b.bus, Sealer: master, Clock: clock.System})
	unit, err := cat.Attach(t.Context(), catalogue.AttachInput{Name: "a1", URL: srv.URL, Engine: "vllm", PublicModel: "acme/test", Key: "sk-up"}, tenants.System())
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.attached = func() (out []*catalogue.Unit) {
		for _, m := range cat.Models() {
			for _, u := range m.Units {
				if u.Attached {
					out = append(out, u)
				}
			}
		}
		return out
	}
	b.start()
	until(t, "ready with its load", func() bool { l := b.load(unit); return l.State == wire.StateReady && l.Running == 4 })
	down.Store(true)
	until(t, "not ready", func() bool { return b.load(unit).State == wire.StateStarting })
	down.Store(false)
	b.untilState(unit, wire.StateReady)
	if tokens.Load() != 1 || keyed.Load() == 0 {
		t.Errorf("%d tokens were asked for, %d questions had the key", tokens.Load(), keyed.Load())
	}
	if err := cat.Detach(t.Context(), unit, tenants.System()); err != nil {
		t.Fatal(err)
	}
	// Nobody asks a detached engine any more.
	until(t, "the prober to leave it alone", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*aliveEvery)
		defer cancel()
		before := keyed.Load()
		<-ctx.Done()
		return keyed.Load() == before
	})
}
