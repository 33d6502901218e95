package usagelog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

// await fails the test when an event is not acknowledged.
func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("not acknowledged")
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// logged reads every event in the log, in order, and the number of messages.
func logged(t *testing.T, b *bus.Bus) (events []usage.Event, messages int) {
	t.Helper()
	info, err := usagelog.Inspect(within(t), b.JetStream())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := b.JetStream().Stream(within(t), bus.LogStream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := info.First; seq <= info.Last; seq++ {
		m, err := stream.GetMsg(within(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		messages++
		for _, line := range usagelog.Lines(m.Data) {
			var e usage.Event
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			events = append(events, e)
		}
	}
	return events, messages
}

func TestEventsAreInTheLogInOrderAndInFewMessages(t *testing.T) {
	b := connect(t, startServer(t, t.TempDir()))
	reg := prometheus.NewRegistry()
	log := open(t, b, usagelog.Config{Metrics: reg})
	const n = 2000
	sent := make([]*usage.Event, n)
	var last <-chan struct{}
	for i := range sent {
		sent[i] = event(orgOf(i % 7))
		last = log.Append(sent[i])
	}
	await(t, last)
	got, messages := logged(t, b)
	if len(got) != n || messages >= n {
		t.Fatalf("%d events in %d messages", len(got), messages)
	}
	for i, e := range got {
		if e.ID != sent[i].ID || e.Charge != sent[i].Charge || e.Usage != sent[i].Usage || !bytes.Equal(e.Raw, sent[i].Raw) {
			t.Fatalf("event %d is %+v, sent %+v", i, e, sent[i])
		}
	}
	info, err := usagelog.Inspect(within(t), b.JetStream())
	if err != nil {
		t.Fatal(err)
	}
	if inc, seq := log.LastAcked(); inc != info.Incarnation || seq[usagelog.Shard] != info.Last {
		t.Fatalf("last acknowledged %s %v, the log is %+v", inc, seq, info)
	}
	if err := log.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		counted[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if counted["millrace_usage_log_events_total"] != n || counted["millrace_usage_log_messages_total"] != float64(messages) {
		t.Errorf("the meters say %v", counted)
	}
}

func TestAFullStreamHoldsEventsBackAndLosesNone(t *testing.T) {
	b := connect(t, startServer(t, t.TempDir()))
	now := clock.NewManual(time.Now())
	log := open(t, b, usagelog.Config{MaxBytes: 16 << 10, Clock: now})
	done := []<-chan struct{}{log.Append(event(orgOf(1)))}
	await(t, done[0])
	for range 39 { // about 35 kB
		done = append(done, log.Append(event(orgOf(1))))
	}
	eventually(t, "a backlog", func() bool { events, _, _ := log.Backlog(); return events > 0 && events < 40 })
	now.Advance(10 * time.Second)
	err := log.Ready()
	if f := fault.Of(err); f == nil || f.Kind != fault.Unavailable || f.RetryAfter == 0 || f.Code != "usage_log_stuck" {
		t.Fatalf("ready: %v", err)
	}
	stream, err := b.JetStream().Stream(within(t), bus.LogStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = -1
	if _, err := b.JetStream().UpdateStream(within(t), cfg); err != nil {
		t.Fatal(err)
	}
	for _, d := range done {
		await(t, d)
	}
	eventually(t, "an empty backlog", func() bool { events, bytes, age := log.Backlog(); return events == 0 && bytes == 0 && age == 0 })
	if err := log.Ready(); err != nil {
		t.Fatal(err)
	}
	if got, _ := logged(t, b); len(got) != 40 {
		t.Fatalf("%d events", len(got))
	}
}

func TestALogThatIsGoneIsMadeAnew(t *testing.T) {
	b := connect(t, startServer(t, t.TempDir()))
	log := open(t, b, usagelog.Config{})
	await(t, log.Append(event(orgOf(1))))
	await(t, log.Append(event(orgOf(1))))
	before, seq := log.LastAcked()
	if seq[usagelog.Shard] != 2 {
		t.Fatalf("%v", seq)
	}
	if err := b.JetStream().DeleteStream(within(t), bus.LogStream); err != nil {
		t.Fatal(err)
	}
	if _, err := usagelog.Inspect(within(t), b.JetStream()); !errors.Is(err, usagelog.ErrNoLog) {
		t.Fatal(err)
	}
	await(t, log.Append(event(orgOf(2))))
	after, seq := log.LastAcked()
	if after == before || seq[usagelog.Shard] != 1 {
		t.Fatalf("incarnation %s then %s, acknowledged %v", before, after, seq)
	}
}

// Another process replaced the stream before this one noticed: the goodbye must speak of the new one.
func TestFlushNoticesAReplacedLog(t *testing.T) {
	b := connect(t, startServer(t, t.TempDir()))
	log := open(t, b, usagelog.Config{})
	await(t, log.Append(event(orgOf(1))))
	if err := b.JetStream().DeleteStream(within(t), bus.LogStream); err != nil {
		t.Fatal(err)
	}
	other := open(t, b, usagelog.Config{})
	for range 3 {
		await(t, other.Append(event(orgOf(1))))
	}
	if err := log.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	want, _ := other.LastAcked()
	if inc, seq := log.LastAcked(); inc != want || seq[usagelog.Shard] != 3 {
		t.Fatalf("%s %v, want %s and 3", inc, seq, want)
	}
}

func TestEventsWaitWhileTheServerIsAway(t *testing.T) {
	dir := t.TempDir()
	cfg := bus.EmbeddedConfig{Dir: dir, Listen: "127.0.0.1:0", Token: "t", SyncAlways: true}
	server, err := bus.StartEmbedded(within(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen = server.URL()[len("nats://"):] // the same port again
	b, err := bus.Connect(within(t), bus.Config{URL: server.URL(), Token: "t", Name: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	log := open(t, b, usagelog.Config{})
	await(t, log.Append(event(orgOf(1))))
	server.Stop()
	var done []<-chan struct{}
	for range 100 {
		done = append(done, log.Append(event(orgOf(1))))
	}
	if server, err = bus.StartEmbedded(within(t), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	for _, d := range done {
		await(t, d)
	}
	got, _ := logged(t, b)
	seen := map[ids.ID]bool{}
	for _, e := range got {
		seen[e.ID] = true
	}
	if len(seen) != 101 {
		t.Fatalf("%d different events in the log, want 101", len(seen))
	}
}

func TestProcessesThatOpenTogetherShareOneLog(t *testing.T) {
	server := startServer(t, t.TempDir())
	logs := make([]*usagelog.Log, 4)
	var wg sync.WaitGroup
	for i := range logs {
		b := connect(t, server)
		wg.Go(func() {
			var err error
			if logs[i], err = usagelog.Open(within(t), usagelog.Config{Bus: b, Clock: clock.System}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	first := ""
	for _, log := range logs {
		if log == nil {
			t.FailNow()
		}
		inc, _ := log.LastAcked()
		if first == "" {
			first = inc
		}
		if inc != first {
			t.Errorf("incarnations %s and %s", first, inc)
		}
		if err := log.Close(within(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestAStreamThatWouldLoseEventsIsRefused(t *testing.T) {
	for name, cfg := range map[string]jetstream.StreamConfig{
		"discards old":   {Metadata: map[string]string{"incarnation": "x"}},
		"in memory":      {Metadata: map[string]string{"incarnation": "x"}, Discard: jetstream.DiscardNew, Storage: jetstream.MemoryStorage},
		"no incarnation": {Discard: jetstream.DiscardNew},
	} {
		t.Run(name, func(t *testing.T) {
			b := connect(t, startServer(t, t.TempDir()))
			cfg.Name, cfg.Subjects = bus.LogStream, []string{bus.LogSubjects}
			if _, err := b.JetStream().CreateStream(within(t), cfg); err != nil {
				t.Fatal(err)
			}
			if log, err := usagelog.Open(within(t), usagelog.Config{Bus: b, Clock: clock.System}); err == nil {
				_ = log.Close(within(t))
				t.Fatal("opened")
			}
		})
	}
}

func TestReadyAsksDiskAndRater(t *testing.T) {
	b := connect(t, startServer(t, t.TempDir()))
	now := clock.NewManual(time.Now())
	log := open(t, b, usagelog.Config{Clock: now, MaxRaterLag: time.Minute, DiskFree: func() (uint64, error) { return 10 << 30, nil }})
	if err := log.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(bus.NoticeLag, []byte(`{"ms":61000}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "503 by the rater's lag", func() bool { f := fault.Of(log.Ready()); return f != nil && f.Code == "rater_behind" })
	now.Advance(time.Minute)
	if err := log.Ready(); err != nil {
		t.Fatalf("an old lag counts: %v", err)
	}
	full := open(t, b, usagelog.Config{DiskFree: func() (uint64, error) { return 100 << 20, nil }})
	if f := fault.Of(full.Ready()); f == nil || f.Code != "disk_full" {
		t.Fatalf("ready on a full disk: %v", f)
	}
}

func TestCloseTellsWhatIsLost(t *testing.T) {
	b := connect(t, startServer(t, t.TempDir()))
	log := open(t, b, usagelog.Config{MaxBytes: 100}) // takes no event at all
	for range 5 {
		log.Append(event(orgOf(1)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := log.Close(ctx); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("close: %v", err)
	}
	if f := fault.Of(log.Ready()); f == nil || f.Kind != fault.Unavailable {
		t.Fatal("a closed log admits requests")
	}
}

func TestARawUsageThatCannotBeWrittenIsLeftOut(t *testing.T) {
	b := connect(t, startServer(t, t.TempDir()))
	log := open(t, b, usagelog.Config{})
	for _, raw := range []string{`{"broken`, `"` + string(bytes.Repeat([]byte("x"), usage.MaxEventBytes)) + `"`, "{\n\"a\":\n1}"} {
		e := event(orgOf(1))
		e.Raw = json.RawMessage(raw)
		await(t, log.Append(e))
	}
	got, _ := logged(t, b)
	if len(got) != 3 || got[0].Raw != nil || got[1].Raw != nil || string(got[2].Raw) != `{"a":1}` {
		t.Fatalf("%d events, raw %q %q %q", len(got), got[0].Raw, got[1].Raw, got[2].Raw)
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n"))
	f.Add([]byte("\n\nx"))
	f.Fuzz(func(t *testing.T, message []byte) {
		want := bytes.Split(bytes.TrimSuffix(message, []byte("\n")), []byte("\n"))
		if len(message) == 0 {
			want = nil
		}
		next := 0
		for position, line := range usagelog.Lines(message) {
			if position != next || !bytes.Equal(line, want[next]) {
				t.Fatalf("line %d of %q is %q", position, message, line)
			}
			next++
		}
		if next != len(want) {
			t.Fatalf("%d lines of %q, want %d", next, message, len(want))
		}
	})
}
