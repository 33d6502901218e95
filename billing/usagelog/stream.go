package usagelog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/db/bus"
)

// metaIncarnation is the key of the stream's metadata that tells its incarnation, written once when it is made.
const metaIncarnation = "incarnation"

// createTries bounds how often creation is tried while another process creates the same stream.
const createTries = 3

// ErrNoLog means that the stream does not exist (yet, or any more).
var ErrNoLog = errors.New("usagelog: there is no usage log")

// Info describes the log as it is now.
type Info struct {
	Incarnation string
	First, Last uint64 // sequences; First is Last+1 when the log holds nothing
	LastAt      time.Time
}

// Inspect asks the stream. What was acknowledged before the call is at or before Last. It fails with ErrNoLog when there
// is no stream.
func Inspect(ctx context.Context, js jetstream.JetStream) (Info, error) {
	s, err := js.Stream(ctx, bus.LogStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Info{}, ErrNoLog
	}
	if err != nil {
		return Info{}, fmt.Errorf("usagelog: stream %s: %w", bus.LogStream, err)
	}
	return describe(s.CachedInfo())
}

func describe(si *jetstream.StreamInfo) (Info, error) {
	incarnation := si.Config.Metadata[metaIncarnation]
	if incarnation == "" {
		return Info{}, fmt.Errorf("usagelog: the stream %s is not a usage log: it has no incarnation", bus.LogStream)
	}
	info := Info{Incarnation: incarnation, First: si.State.FirstSeq, Last: si.State.LastSeq, LastAt: si.State.LastTime}
	if si.State.Msgs == 0 { // of a stream that never held anything the server says 0
		info.First = info.Last + 1
	}
	return info, nil
}

// ensure opens the stream, or makes it with a new incarnation. Several processes may do so at once: the first one's
// stream is everybody's.
func ensure(ctx context.Context, js jetstream.JetStream, c *Config) (Info, error) {
	var err error
	for range createTries {
		var s jetstream.Stream
		if s, err = js.Stream(ctx, bus.LogStream); err == nil {
			return adopt(ctx, js, s.CachedInfo(), c)
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			break
		}
		if s, err = js.CreateStream(ctx, streamConfig(c)); err == nil {
			return describe(s.CachedInfo())
		}
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			break
		}
	}
	return Info{}, fmt.Errorf("usagelog: open the stream %s: %w", bus.LogStream, err)
}

func streamConfig(c *Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: bus.LogStream, Description: "Millrace usage events, kept until long after they are rated",
		Subjects: []string{bus.LogSubjects}, Storage: jetstream.FileStorage,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxAge: MaxAge, MaxBytes: c.MaxBytes,
		Replicas: c.Replicas, DenyDelete: true, DenyPurge: true,
		Metadata: map[string]string{metaIncarnation: uuid.NewString()},
	}
}

// adopt takes an existing stream, and brings its size and replicas to what is configured now.
func adopt(ctx context.Context, js jetstream.JetStream, si *jetstream.StreamInfo, c *Config) (Info, error) {
	info, err := describe(si)
	if err != nil {
		return Info{}, err
	}
	cfg := si.Config
	if cfg.Retention != jetstream.LimitsPolicy || cfg.Discard != jetstream.DiscardNew || cfg.Storage != jetstream.FileStorage {
		return Info{}, fmt.Errorf("usagelog: the stream %s would lose events (retention %v, discard %v, storage %v)",
			bus.LogStream, cfg.Retention, cfg.Discard, cfg.Storage)
	}
	wantBytes := c.MaxBytes
	if wantBytes == 0 {
		wantBytes = -1 // how the server writes "no limit"
	}
	if cfg.MaxBytes == wantBytes && cfg.Replicas == c.Replicas {
		return info, nil
	}
	cfg.MaxBytes, cfg.Replicas = wantBytes, c.Replicas
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return Info{}, fmt.Errorf("usagelog: update the stream %s: %w", bus.LogStream, err)
	}
	return info, nil
}
