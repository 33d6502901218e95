package keys

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants/secret"
)

func TestVerdicts(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name   string
		change func(*Record)
		kind   fault.Kind
		code   string
	}{
		{"revoked", func(r *Record) { r.RevokedAt = now }, fault.Unauthenticated, "api_key_revoked"},
		{"expired", func(r *Record) { r.ExpiresAt = now.Add(-time.Second) }, fault.Unauthenticated, "api_key_expired"},
		{"archived project", func(r *Record) { r.Archived = true }, fault.Unauthenticated, "project_archived"},
		{"suspended", func(r *Record) { r.Principal.Suspended = true }, fault.Forbidden, "organization_suspended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource()
				key, h := src.add(somebody())
				src.change(h, func(r *Record) {
					tt.change(r)
					if !r.ExpiresAt.IsZero() {
						r.ExpiresAt = time.Now().Add(-time.Second)
					}
				})
				a := start(t, src, never)
				for range 2 { // from the database, then from the cache
					_, err := a.Authenticate(t.Context(), key)
					if f := fault.Of(err); f == nil || f.Kind != tt.kind || f.Code != tt.code {
						t.Fatalf("got %v", err)
					}
				}
				if src.count() != 1 {
					t.Errorf("%d queries, want 1", src.count())
				}
			})
		})
	}
}

func TestMalformedKeysCostNoQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		a := start(t, src, never)
		good := secret.New(secret.APIKey)
		for _, key := range []string{"", "sk-proj-abc", good[:len(good)-1] + "!", secret.New(secret.ControlToken)} {
			mustRefuse(t, a, key, "invalid_api_key")
		}
		if src.count() != 0 {
			t.Fatalf("%d queries", src.count())
		}
	})
}

func TestAKeyInUseIsReadOncePerRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who := somebody()
		key, _ := src.add(who)
		a := start(t, src, never)
		const minutes = 5
		for range minutes * 60 * 10 {
			mustPass(t, a, key, who)
			sleep(100 * time.Millisecond)
		}
		if got, most := src.count(), 1+minutes*60/4; got > most {
			t.Errorf("%d queries in %d minutes, want at most %d", got, minutes, most)
		}
		src.set(func(s *fakeSource) {
			if n := len(s.touches); n < minutes-1 || n > minutes+1 {
				t.Errorf("last use written %d times in %d minutes", n, minutes)
			}
		})
	})
}

func TestIdleKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who := somebody()
		key, h := src.add(who)
		a := start(t, src, never)
		mustPass(t, a, key, who)
		sleep(2 * idleAfter)
		a.mu.RLock()
		defer a.mu.RUnlock()
		if a.entries[h] != nil {
			t.Error("still in memory")
		}
	})
}

func TestRequestsForOneKeyShareOneQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.reading = func() { sleep(time.Second) }
		who := somebody()
		key, h := src.add(who)
		a := start(t, src, never)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { mustPass(t, a, key, who) })
		}
		wg.Wait()
		if src.asked[h] != 1 {
			t.Errorf("asked %d times", src.asked[h])
		}
	})
}

// A client that goes on with a revoked key costs a query per HardTTL, however often it comes.
func TestARevokedKeyInUseIsReadOncePerHardTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		key, h := src.add(somebody())
		src.revoke(h)
		a := start(t, src, never)
		const minutes = 2
		for range minutes * 60 * 10 {
			mustRefuse(t, a, key, "api_key_revoked")
			sleep(100 * time.Millisecond)
		}
		if got, most := src.count(), 1+int(minutes*time.Minute/HardTTL); got > most {
			t.Errorf("%d queries in %d minutes, want at most %d", got, minutes, most)
		}
	})
}

func TestUnknownKeysAreRememberedBrieflyAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		a := start(t, src, never)
		key := secret.New(secret.APIKey)
		h := fakeHasher{}.KeyHash(key)
		mustRefuse(t, a, key, "invalid_api_key")
		mustRefuse(t, a, key, "invalid_api_key")
		if src.asked[h] != 1 {
			t.Errorf("asked %d times at once", src.asked[h])
		}
		sleep(absentTTL)
		mustRefuse(t, a, key, "invalid_api_key")
		if src.asked[h] != 2 {
			t.Errorf("asked %d times after absentTTL", src.asked[h])
		}
		for range maxAbsent + 500 {
			mustRefuse(t, a, secret.New(secret.APIKey), "invalid_api_key")
		}
		if n := len(a.absent.until); n > maxAbsent {
			t.Errorf("%d unknown keys remembered", n)
		}
	})
}

// A key may be asked for before it exists (a client that retries): the notice of its making must clear the memory of it.
func TestANoticeClearsAnUnknownKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		a := start(t, src, never)
		key := secret.New(secret.APIKey)
		mustRefuse(t, a, key, "invalid_api_key")
		h, who := fakeHasher{}.KeyHash(key), somebody()
		src.set(func(s *fakeSource) { s.records[h] = Record{Hash: h, Principal: who} })
		a.Invalidate(notice(h))
		mustPass(t, a, key, who)
	})
}

func TestExpiryNeedsNoQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who := somebody()
		key, h := src.add(who)
		src.change(h, func(r *Record) { r.ExpiresAt = time.Now().Add(2 * time.Second) })
		a := start(t, src, never)
		mustPass(t, a, key, who)
		sleep(2*time.Second - 1)
		mustPass(t, a, key, who)
		sleep(1)
		mustRefuse(t, a, key, "api_key_expired")
		if src.count() != 1 {
			t.Errorf("%d queries, want 1", src.count())
		}
	})
}

func TestAFloodOfUnknownKeysIsRefusedNotQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.reading = func() { sleep(time.Second) }
		a := start(t, src, never)
		var wg sync.WaitGroup
		kinds := make([]fault.Kind, maxWaiting+100)
		for i := range kinds {
			wg.Go(func() {
				_, err := a.Authenticate(t.Context(), secret.New(secret.APIKey))
				kinds[i] = fault.Of(err).Kind
			})
		}
		wg.Wait()
		n := map[fault.Kind]int{}
		for _, k := range kinds {
			n[k]++
		}
		if n[fault.Unavailable] == 0 || n[fault.Unauthenticated] < maxWaiting {
			t.Errorf("verdicts %v", n)
		}
	})
}

func TestGivingUpDoesNotHurtOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		src.reading = func() { sleep(time.Second) }
		who := somebody()
		key, _ := src.add(who)
		a := start(t, src, never)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.Authenticate(impatient, key); !fault.Is(err, fault.Unavailable) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		mustPass(t, a, key, who)
		wg.Wait()
	})
}

func TestAfterRunNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		a := NewAuthenticator(src, fakeHasher{}, systemClock, never)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = a.Run(ctx)
		key, _ := src.add(somebody())
		if _, err := a.Authenticate(t.Context(), key); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestNonsenseNoticesAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who := somebody()
		key, _ := src.add(who)
		a := start(t, src, never)
		mustPass(t, a, key, who)
		for _, p := range []string{"", "x", fmt.Sprintf("%064x", "no"), ids.Format(ids.Key, ids.New()), string(make([]byte, 64))} {
			a.Invalidate([]byte(p))
		}
		mustPass(t, a, key, who)
		if src.count() != 1 {
			t.Errorf("%d queries, want 1", src.count())
		}
	})
}

func notice(h Hash) []byte { return []byte(hex.EncodeToString(h[:])) }
