package credit

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/ids"
)

const (
	// margin is how long before its validity ends an epoch stops admitting: a hold is not taken in an instant.
	margin = 2 * time.Second
	shards = 64
)

var errEpochOver = errors.New("credit: the epoch is over: its row is gone, closed, or older than this process knows it")

// epoch is one life of the process and all the money it was allotted.
type epoch struct {
	owner    *Allotments
	id       ids.ID
	lock     *os.File
	lastSeen time.Time    // heartbeat_at as the database answered; the heart's alone
	valid    atomic.Int64 // until when, in nanoseconds since Allotments.base
	over     atomic.Bool
	shards   [shards]shard
}

type shard struct {
	mu      sync.Mutex
	wallets map[ids.ID]*wallet
}

func newEpoch(owner *Allotments, id ids.ID, lock *os.File) *epoch {
	e := &epoch{owner: owner, id: id, lock: lock}
	for i := range e.shards {
		e.shards[i].wallets = make(map[ids.ID]*wallet)
	}
	return e
}

// shard of an organization. The last byte of a UUIDv7 is random.
func (e *epoch) shard(org ids.ID) *shard { return &e.shards[org[15]%shards] }

// wallet of an organization, nil when there is none yet. The caller holds the shard's mutex.
func (s *shard) wallet(org ids.ID, e *epoch, now time.Time) *wallet {
	w := s.wallets[org]
	if w == nil {
		w = &wallet{org: org, epoch: e, mu: &s.mu, pots: make(map[ids.ID]*pot), byKey: make(map[budgetKey]*pot),
			routes: make(map[ids.ID]*route), turn: make(chan struct{}, 1), stale: true}
		s.wallets[org] = w
	}
	w.lastUse = now
	return w
}

// each calls fn for every wallet, with its mutex held.
func (e *epoch) each(fn func(w *wallet)) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		for _, w := range s.wallets {
			fn(w)
		}
		s.mu.Unlock()
	}
}
