package keys

import (
	"context"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/tenants/secret"
)

// Source is where records come from: Store.
type Source interface {
	// Lookup gives the records of the hashes that exist. An empty list only proves that the source answers.
	Lookup(ctx context.Context, hashes []Hash) ([]Record, error)
	// Touch stores when keys were last used.
	Touch(ctx context.Context, uses []Use) error
}

// Use says when a key was last used.
type Use struct {
	Org, Key ids.ID
	At       time.Time
}

// Hasher makes the lookup hash of a secret: *seal.Master.
type Hasher interface {
	KeyHash(secret string) [32]byte
}

// Authenticator tells whose key a request carries, from memory where it can. Run must be running; it is safe for
// concurrent use.
type Authenticator struct {
	source     Source
	hasher     Hasher
	clock      clock.Clock
	stillValid func() bool
	// refreshEvery is RefreshInterval outside tests.
	refreshEvery time.Duration

	away atomic.Bool   // the last query failed
	wake chan struct{} // there are keys to look up

	mu      sync.RWMutex
	entries map[Hash]*entry
	absent  absentees
	waiting map[Hash]*call       // looked up now or soon
	queue   []Hash               // of waiting: not yet in a query
	flights map[*flight]struct{} // queries under way
	stopped bool                 // Run has ended
}

// NewAuthenticator makes one. stillValid says, while the database is away, whether entries beyond HardTTL may be used:
// the gateway answers by its epoch.
func NewAuthenticator(source Source, hasher Hasher, clock clock.Clock, stillValid func() bool) *Authenticator {
	return &Authenticator{source: source, hasher: hasher, clock: clock, stillValid: stillValid,
		refreshEvery: RefreshInterval, wake: make(chan struct{}, 1),
		entries: map[Hash]*entry{}, absent: absentees{until: map[Hash]time.Time{}},
		waiting: map[Hash]*call{}, flights: map[*flight]struct{}{}}
}

// Run reads keys and keeps them fresh until ctx ends, then stores the last uses and returns.
func (a *Authenticator) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { a.loadLoop(ctx) })
	wg.Go(func() { a.refreshLoop(ctx) })
	wg.Wait()
	return ctx.Err()
}

// Authenticate gives the principal of an API key. Errors: fault.Unauthenticated for a key that is missing, malformed,
// unknown, revoked, expired or of an archived project; fault.Forbidden, with the principal, when the organization is
// suspended; fault.Unavailable when the database is away and the key is not known here.
func (a *Authenticator) Authenticate(ctx context.Context, key string) (Principal, error) {
	if key == "" {
		return Principal{}, missingKey()
	}
	if !secret.Plausible(secret.APIKey, key) {
		return Principal{}, unknownKey()
	}
	return a.AuthenticateHash(ctx, a.hasher.KeyHash(key))
}

// AuthenticateHash is Authenticate for who kept a key's hash: work that goes on after the request that asked for it.
func (a *Authenticator) AuthenticateHash(ctx context.Context, h Hash) (Principal, error) {
	p, err := a.answer(ctx, h)
	p.hash = h
	return p, err
}

// Standing tells whether who was let in would be let in again: work that lasts asks now and then. Errors are those of
// Authenticate.
func (a *Authenticator) Standing(ctx context.Context, p *Principal) error {
	if p.hash == (Hash{}) {
		return nil // it was let in otherwise than by a key
	}
	_, err := a.answer(ctx, p.hash)
	return err
}

func (a *Authenticator) answer(ctx context.Context, h Hash) (Principal, error) {
	now := a.clock.Now()
	e, absent := a.find(h, now)
	switch {
	case e != nil && (now.Sub(e.loaded) < HardTTL || a.outlives()):
		return e.answer(now)
	case absent:
		return Principal{}, unknownKey()
	}
	e, err := a.load(ctx, h)
	switch {
	case err != nil:
		// Look again: a notice may have dropped the old entry meanwhile.
		if old, _ := a.find(h, now); old != nil && a.outlives() {
			return old.answer(now)
		}
		return Principal{}, err
	case e == nil:
		return Principal{}, unknownKey()
	}
	return e.answer(a.clock.Now())
}

// outlives reports whether entries may be used beyond HardTTL.
func (a *Authenticator) outlives() bool { return a.away.Load() && a.stillValid() }

func (a *Authenticator) find(h Hash, now time.Time) (e *entry, absent bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if e = a.entries[h]; e != nil {
		return e, false
	}
	until, known := a.absent.until[h]
	return nil, known && now.Before(until)
}

// Subscriber gives notices: *bus.Bus.
type Subscriber interface {
	Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error)
}

// Follow takes the notices of changed keys from the bus until stop is called.
func (a *Authenticator) Follow(b Subscriber) (stop func(), err error) {
	return b.Subscribe(bus.NoticeKey, func(_ string, data []byte) { a.Invalidate(data) })
}

// Invalidate takes a notice from the bus (bus.NoticeKey): the key, or every key of the organization, is read anew before
// it is next used. A query under way is not believed about it.
func (a *Authenticator) Invalidate(payload []byte) {
	var h Hash
	if len(payload) == hex.EncodedLen(len(h)) {
		if _, err := hex.Decode(h[:], payload); err == nil {
			a.drop(h)
			return
		}
	}
	org, err := ids.Parse(ids.Org, string(payload))
	if err != nil {
		slog.Warn("keys: a notice that is neither a key nor an organization", "payload_bytes", len(payload))
		return
	}
	a.dropOrg(org)
}

func (a *Authenticator) drop(h Hash) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, h)
	delete(a.absent.until, h)
	for f := range a.flights {
		f.overtaken[h] = true
	}
}

func (a *Authenticator) dropOrg(org ids.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for h, e := range a.entries {
		if e.Principal.Org == org {
			delete(a.entries, h)
		}
	}
	for f := range a.flights {
		f.overtakenOrgs[org] = true
	}
}
