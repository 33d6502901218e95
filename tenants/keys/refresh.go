package keys

import (
	"context"
	"log/slog"
	"time"
)

// refreshLoop keeps the keys in use fresh and stores their last use until ctx ends, then stores what is left.
func (a *Authenticator) refreshLoop(ctx context.Context) {
	for {
		wait := a.refreshEvery
		if a.away.Load() {
			wait = awayInterval
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
			defer cancel()
			a.touch(last)
			return
		case <-time.After(wait):
			a.refresh(ctx)
			a.touch(ctx)
		}
	}
}

// refresh reads the keys in use again, all in one query, and drops idle ones. While the database is away it also proves,
// with nothing to read, whether it is back: else an idle gateway would believe old entries for as long as it is idle.
func (a *Authenticator) refresh(ctx context.Context) {
	hashes := a.inUse()
	if len(hashes) == 0 && !a.away.Load() {
		return
	}
	f, found, err := a.query(ctx, hashes)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.flights, f)
	if err != nil {
		return
	}
	for _, h := range hashes {
		old := a.entries[h]
		r, exists := found[h]
		switch {
		case old == nil || old.loaded.After(f.started):
			// Dropped by a notice, or read anew by a request: this answer is the older one.
		case f.stale(h, old.Principal.Org):
			// Loaded after a notice, or about to be; either way this answer may be older than the notice.
		case exists:
			a.publish(r, f)
		default:
			delete(a.entries, h)
		}
	}
}

// inUse lists the keys used since they were loaded and forgets idle ones.
func (a *Authenticator) inUse() []Hash {
	now := a.clock.Now()
	keep := a.away.Load() // nothing could be loaded again
	var used []Hash
	a.mu.Lock()
	defer a.mu.Unlock()
	for h, e := range a.entries {
		switch {
		case e.usedSince(e.loaded):
			used = append(used, h)
		case !keep && now.Sub(e.loaded) > idleAfter:
			delete(a.entries, h)
		}
	}
	return used
}

// touch stores the last use of keys whose stored one is older by touchGap.
func (a *Authenticator) touch(ctx context.Context) {
	if a.away.Load() {
		return
	}
	touched, uses := a.untold()
	if len(uses) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := a.source.Touch(ctx, uses); err != nil {
		slog.Warn("keys: last uses were not stored; tried again soon", "cause", err, "keys", len(uses))
		return
	}
	for i, e := range touched {
		e.stored.Store(uses[i].At.UnixNano())
	}
}

// untold lists entries with a last use that the database should learn.
func (a *Authenticator) untold() (touched []*entry, uses []Use) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, e := range a.entries {
		if used := e.used.Load(); used-e.stored.Load() > int64(touchGap) {
			touched = append(touched, e)
			uses = append(uses, Use{Org: e.Principal.Org, Key: e.Principal.Key, At: time.Unix(0, used)})
		}
	}
	return touched, uses
}
