package keys

import (
	"sync/atomic"
	"time"
)

// Hash is the lookup hash of a key: seal.Master.KeyHash.
type Hash = [32]byte

// Record is what the database says about a key.
type Record struct {
	Hash      Hash
	Principal Principal
	ExpiresAt time.Time // zero = never
	RevokedAt time.Time // zero = not
	Archived  bool      // its project is
	LastUsed  time.Time // zero = never
}

// entry is a record in the cache. The record is never changed: a newer one replaces the entry.
type entry struct {
	Record
	loaded time.Time    // before the query was sent: what the answer is at least as new as
	used   atomic.Int64 // last use, unix nanoseconds; 0 = not since it was first loaded
	stored atomic.Int64 // the last use that the database knows, unix nanoseconds; 0 = none
}

// usedResolution keeps a busy key's requests from writing one memory word all at once.
const usedResolution = int64(time.Second)

func (e *entry) markUsed(now time.Time) {
	if n := now.UnixNano(); n-e.used.Load() > usedResolution {
		e.used.Store(n)
	}
}

// usedSince reports whether the key was used after t.
func (e *entry) usedSince(t time.Time) bool { return e.used.Load() > t.UnixNano() }

// answer is the verdict at the moment now.
func (e *entry) answer(now time.Time) (Principal, error) {
	switch {
	case !e.RevokedAt.IsZero():
		return Principal{}, revokedKey(e.RevokedAt)
	case !e.ExpiresAt.IsZero() && !now.Before(e.ExpiresAt):
		return Principal{}, expiredKey(e.ExpiresAt)
	case e.Archived:
		return Principal{}, archivedProject()
	case e.Principal.Suspended:
		return e.Principal, suspendedOrg()
	}
	e.markUsed(now)
	return e.Principal, nil
}

// absentees remembers unknown keys, the newest maxAbsent of them. Guarded by the Authenticator's lock.
type absentees struct {
	until map[Hash]time.Time
	ring  []Hash // in the order they came; next is the oldest
	next  int
}

func (a *absentees) add(h Hash, until time.Time) {
	if _, known := a.until[h]; !known {
		if len(a.ring) < maxAbsent {
			a.ring = append(a.ring, h)
		} else {
			delete(a.until, a.ring[a.next])
			a.ring[a.next] = h
			a.next = (a.next + 1) % maxAbsent
		}
	}
	a.until[h] = until
}
