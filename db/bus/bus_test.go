package bus

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func start(t testing.TB, c EmbeddedConfig) (*Server, *Bus) {
	t.Helper()
	s, err := StartEmbedded(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Connect(context.Background(), Config{Server: s, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

func TestTheLogSurvivesARestart(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s, b := start(t, EmbeddedConfig{Dir: dir, SyncAlways: true})
	_, err := b.JetStream().CreateStream(ctx, jetstream.StreamConfig{Name: LogStream, Subjects: []string{LogSubjects}, Metadata: map[string]string{"incarnation": "one"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.JetStream().Publish(ctx, "usage.0", []byte("event")); err != nil {
		t.Fatal(err)
	}
	b.Close()
	s.Stop()
	s, b = start(t, EmbeddedConfig{Dir: dir, SyncAlways: true})
	defer s.Stop()
	defer b.Close()
	stream, err := b.JetStream().Stream(ctx, LogStream)
	if err != nil {
		t.Fatal(err)
	}
	if info := stream.CachedInfo(); info.State.Msgs != 1 || info.Config.Metadata["incarnation"] != "one" {
		t.Fatalf("%+v", info)
	}
}

func TestAnotherProcessNeedsTheToken(t *testing.T) {
	s, b := start(t, EmbeddedConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: "secret"})
	defer s.Stop()
	defer b.Close()
	if other, err := Connect(t.Context(), Config{URL: s.URL(), Name: "thief"}); err == nil {
		other.Close()
		t.Fatal("connected without the token")
	}
	other, err := Connect(t.Context(), Config{URL: s.URL(), Token: "secret", Name: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	heard := make(chan string, 1)
	if _, err := b.Subscribe(NoticeKey, func(_ string, data []byte) { heard <- string(data) }); err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := other.Publish(NoticeKey, []byte("k")); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-heard:
		if got != "k" {
			t.Fatal(got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("not heard")
	}
	if _, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: t.TempDir(), Listen: "0.0.0.0:0", Token: "x"}); err == nil {
		t.Fatal("listens on every interface")
	}
}

// One synced publish with its acknowledgement: what the last byte of an answer waits for.
func BenchmarkSyncedPublish(b *testing.B) {
	s, c := start(b, EmbeddedConfig{Dir: b.TempDir(), SyncAlways: true})
	defer s.Stop()
	defer c.Close()
	if _, err := c.JetStream().CreateStream(b.Context(), jetstream.StreamConfig{Name: LogStream, Subjects: []string{LogSubjects}}); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 800)
	for b.Loop() {
		if _, err := c.JetStream().Publish(b.Context(), "usage.0", data); err != nil {
			b.Fatal(err)
		}
	}
}
