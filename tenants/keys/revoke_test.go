package keys

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

var systemClock = clock.System

func TestARevokedKeyIsRefusedAtOnceWithTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who := somebody()
		key, h := src.add(who)
		a := start(t, src, never)
		mustPass(t, a, key, who)
		src.revoke(h)
		a.Invalidate(notice(h))
		mustRefuse(t, a, key, "api_key_revoked")
	})
}

// Without the bus, for every moment of revocation within a refresh interval and with a slow database.
func TestARevokedKeyIsRefusedWithinHardTTLWithoutTheBus(t *testing.T) {
	for revokeAt := 11 * time.Second; revokeAt < 16*time.Second; revokeAt += 250 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			src := newFakeSource()
			src.reading = func() { sleep(1900 * time.Millisecond) }
			who := somebody()
			key, h := src.add(who)
			a := start(t, src, always)
			began := time.Now()
			var revoked, lastPass time.Time
			for time.Since(began) < 40*time.Second {
				if revoked.IsZero() && time.Since(began) >= revokeAt {
					src.revoke(h)
					revoked = time.Now()
				}
				asked := time.Now()
				if _, err := a.Authenticate(t.Context(), key); err == nil {
					lastPass = asked
				}
				sleep(50 * time.Millisecond)
			}
			if late := lastPass.Sub(revoked); late > HardTTL {
				t.Errorf("revoked at %v: still passed %v later", revokeAt, late)
			}
			mustRefuse(t, a, key, "api_key_revoked")
		})
	}
}

// The fence: the query read the key before it was revoked and answers after the notice.
func TestANoticeBeatsAQueryUnderWay(t *testing.T) {
	for name, note := range map[string]func(Hash, Principal) []byte{
		"key": func(h Hash, _ Principal) []byte { return notice(h) },
		"org": func(_ Hash, p Principal) []byte { return []byte(ids.Format(ids.Org, p.Org)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFakeSource()
				who := somebody()
				key, h := src.add(who)
				a := start(t, src, never)
				var once sync.Once
				src.reading = func() {
					once.Do(func() {
						src.revoke(h)
						a.Invalidate(note(h, who))
					})
				}
				mustRefuse(t, a, key, "api_key_revoked")
				if src.asked[h] != 2 {
					t.Errorf("asked %d times, want 2", src.asked[h])
				}
			})
		})
	}
}

// The same for the background refresh: it must not bring the old record back after the notice dropped it.
func TestANoticeBeatsARefreshUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who := somebody()
		key, h := src.add(who)
		a := start(t, src, never)
		mustPass(t, a, key, who)
		sleep(RefreshInterval - time.Millisecond)
		mustPass(t, a, key, who)
		src.set(func(s *fakeSource) { s.reading = func() { sleep(time.Second) } })
		sleep(500 * time.Millisecond) // the refresh has read the record and is still on its way
		src.revoke(h)
		a.Invalidate(notice(h))
		sleep(time.Second) // the refresh has landed
		mustRefuse(t, a, key, "api_key_revoked")
	})
}

func TestNoticesWithoutEndGiveUnavailableNotAnOldAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		key, h := src.add(somebody())
		a := start(t, src, never)
		src.reading = func() { a.Invalidate(notice(h)) }
		if _, err := a.Authenticate(t.Context(), key); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("got %v", err)
		}
		if src.asked[h] != 1+maxReloads {
			t.Errorf("asked %d times", src.asked[h])
		}
	})
}

func TestWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who, other := somebody(), somebody()
		key, h := src.add(who)
		cold, _ := src.add(other)
		var mu sync.Mutex
		valid := true
		a := start(t, src, func() bool { mu.Lock(); defer mu.Unlock(); return valid })
		mustPass(t, a, key, who)
		src.set(func(s *fakeSource) { s.down = true })
		for range 600 { // five minutes
			mustPass(t, a, key, who)
			sleep(500 * time.Millisecond)
		}
		if _, err := a.Authenticate(t.Context(), cold); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("a key never seen: got %v", err)
		}
		mu.Lock()
		valid = false
		mu.Unlock()
		if _, err := a.Authenticate(t.Context(), key); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("past the epoch's validity: got %v", err)
		}
		mu.Lock()
		valid = true
		mu.Unlock()
		mustPass(t, a, key, who)
		a.Invalidate(notice(h))
		if _, err := a.Authenticate(t.Context(), key); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("after a notice: got %v", err)
		}
		src.set(func(s *fakeSource) { s.down = false })
		mustPass(t, a, key, who)
		mustPass(t, a, cold, other)
	})
}

// An outage ends while a gateway is idle: it must notice by itself, or it would believe its old entries at the next use.
func TestAnIdleGatewayNoticesThatTheDatabaseIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who := somebody()
		key, h := src.add(who)
		cold, _ := src.add(somebody())
		a := start(t, src, always)
		mustPass(t, a, key, who)
		src.set(func(s *fakeSource) { s.down = true })
		if _, err := a.Authenticate(t.Context(), cold); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("got %v", err)
		}
		sleep(30 * time.Second)
		src.set(func(s *fakeSource) { s.down = false })
		src.revoke(h)
		sleep(HardTTL)
		mustRefuse(t, a, key, "api_key_revoked")
	})
}

// A valid epoch prolongs entries only while the database is away.
func TestAnIdleKeyIsReadAnewAfterHardTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource()
		who := somebody()
		key, h := src.add(who)
		a := start(t, src, always)
		mustPass(t, a, key, who)
		src.revoke(h)
		sleep(HardTTL)
		mustRefuse(t, a, key, "api_key_revoked")
	})
}

// Any order of revocations with and without notices, outages and pauses: a key passes only if it was in order at most
// HardTTL ago, or the database was away since; and never after a notice.
func TestRevocationModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) { revocationModel(t, rt) })
	})
}

func revocationModel(t *testing.T, rt *rapid.T) {
	src := newFakeSource()
	who := somebody()
	key, h := src.add(who)
	a := NewAuthenticator(src, fakeHasher{}, systemClock, always)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = a.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	var revoked, back time.Time // when; zero = not
	noticed, down := false, false
	for range rapid.IntRange(5, 60).Draw(rt, "steps") {
		switch rapid.SampledFrom([]string{"use", "use", "use", "wait", "revoke", "notice", "restore", "down", "up"}).Draw(rt, "step") {
		case "wait":
			sleep(time.Duration(rapid.IntRange(1, 15_000).Draw(rt, "ms")) * time.Millisecond)
		case "revoke":
			if revoked.IsZero() && !down {
				src.revoke(h)
				revoked, noticed = time.Now(), false
			}
		case "notice":
			if !revoked.IsZero() {
				a.Invalidate(notice(h))
				noticed = true
			}
		case "restore":
			if !down {
				src.change(h, func(r *Record) { r.RevokedAt = time.Time{} })
				a.Invalidate(notice(h))
				revoked = time.Time{}
			}
		case "down":
			src.set(func(s *fakeSource) { s.down = true })
			down = true
		case "up":
			if down {
				back = time.Now()
			}
			src.set(func(s *fakeSource) { s.down = false })
			down = false
		case "use":
			_, err := a.Authenticate(t.Context(), key)
			switch {
			case revoked.IsZero() && err != nil && !down:
				rt.Fatalf("a key in order was refused: %v", err)
			case !revoked.IsZero() && err == nil && noticed:
				rt.Fatal("a revoked key passed after its notice")
			case !revoked.IsZero() && err == nil && !down && time.Since(revoked) > HardTTL && time.Since(back) > HardTTL:
				rt.Fatalf("a revoked key passed %v after", time.Since(revoked))
			}
		}
	}
}
