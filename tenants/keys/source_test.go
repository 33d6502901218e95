package keys

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants/secret"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // outages on purpose would fill the output
	os.Exit(m.Run())
}

// fakeSource is a database that can be slow, away, and asked what it was asked.
type fakeSource struct {
	mu      sync.Mutex
	records map[Hash]Record
	down    bool
	lookups int
	asked   map[Hash]int
	touches []Use
	// reading, when set, is called between reading the records and answering: a query under way.
	reading func()
}

var errDown = errors.New("connection refused")

func newFakeSource() *fakeSource {
	return &fakeSource{records: map[Hash]Record{}, asked: map[Hash]int{}}
}

func (s *fakeSource) Lookup(ctx context.Context, hashes []Hash) ([]Record, error) {
	s.mu.Lock()
	s.lookups++
	var out []Record
	for _, h := range hashes {
		s.asked[h]++
		if r, ok := s.records[h]; ok {
			out = append(out, r)
		}
	}
	down, reading := s.down, s.reading
	s.mu.Unlock()
	if down {
		return nil, errDown
	}
	if reading != nil {
		reading()
	}
	return out, ctx.Err()
}

func (s *fakeSource) Touch(_ context.Context, uses []Use) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errDown
	}
	s.touches = append(s.touches, uses...)
	return nil
}

func (s *fakeSource) set(change func(*fakeSource)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *fakeSource) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups
}

// add makes a key with everything in order.
func (s *fakeSource) add(p Principal) (key string, h Hash) {
	key = secret.New(secret.APIKey)
	h = fakeHasher{}.KeyHash(key)
	s.set(func(s *fakeSource) { s.records[h] = Record{Hash: h, Principal: p} })
	return key, h
}

func (s *fakeSource) change(h Hash, change func(*Record)) {
	s.set(func(s *fakeSource) {
		r := s.records[h]
		change(&r)
		s.records[h] = r
	})
}

func (s *fakeSource) revoke(h Hash) {
	s.change(h, func(r *Record) { r.RevokedAt = clock.System.Now() })
}

type fakeHasher struct{}

func (fakeHasher) KeyHash(s string) [32]byte { return sha256.Sum256([]byte(s)) }

// start runs an Authenticator inside a synctest bubble until the test ends.
func start(t *testing.T, source Source, stillValid func() bool) *Authenticator {
	t.Helper()
	a := NewAuthenticator(source, fakeHasher{}, clock.System, stillValid)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = a.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return a
}

func never() bool  { return false }
func always() bool { return true }

func somebody() Principal {
	return Principal{Org: ids.New(), Project: ids.New(), Key: ids.New(), PriceBook: "standard", TimeZone: "UTC", FailurePolicy: "delivered"}
}

func mustPass(t testing.TB, a *Authenticator, key string, want Principal) {
	t.Helper()
	got, err := a.Authenticate(context.Background(), key)
	if err != nil || Bare(got) != want {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
}

func mustRefuse(t testing.TB, a *Authenticator, key, code string) {
	t.Helper()
	_, err := a.Authenticate(context.Background(), key)
	if f := fault.Of(err); f == nil || f.Code != code {
		t.Fatalf("got %v, want code %q", err, code)
	}
}

func sleep(d time.Duration) { time.Sleep(d) } // fake time: always inside a bubble
