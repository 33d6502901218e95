package hub

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/tenants/audit"
)

// Refused attempts at an identity go to the audit log, but whoever attempts must not fill it: an attempt is written once
// in refusalWindow, and of each class at most maxRefusals are. What is left out is counted, and the next entry tells it.
const (
	refusalWindow = time.Hour
	maxRefusals   = 60
)

// Classes of refused attempts: a flood of strangers leaves room for what a known host tries.
const (
	byStranger = iota
	byHost
	refusalClasses
)

// refusal is one attempt as the audit log tells it.
type refusal struct {
	class  int
	target string // whose identity or unit it was about
	reason string
}

// refusals bounds what is written of refused attempts.
type refusals struct {
	mu        sync.Mutex
	began     time.Time // of the window
	written   map[refusal]bool
	left      [refusalClasses]int
	unwritten int64
}

// take reports whether an attempt is to be written, and how many were not since the last that was.
func (s *refusals) take(r refusal, now time.Time) (write bool, unwritten int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == nil || now.Sub(s.began) >= refusalWindow {
		s.began, s.written, s.left = now, map[refusal]bool{}, [refusalClasses]int{maxRefusals, maxRefusals}
	}
	if s.written[r] || s.left[r.class] == 0 {
		s.unwritten++
		return false, 0
	}
	s.written[r] = true
	s.left[r.class]--
	unwritten, s.unwritten = s.unwritten, 0
	return true, unwritten
}

// refused audits a refused attempt, within the bounds. The attempt is refused whether or not it can be written.
func (h *Hub) refused(r refusal, from string) {
	now := h.cfg.Clock.Now()
	write, unwritten := h.refusals.take(r, now)
	if !write {
		return
	}
	h.cfg.Log.Warn("an attempt at an identity was refused", "target", r.target, "reason", r.reason, "from", from)
	type after struct {
		Reason    string `json:"reason"`
		Unwritten int64  `json:"unwritten,omitempty"` // further refusals since the last entry
	}
	err := h.inTx(context.Background(), func(tx pgx.Tx) error { // the caller may be gone already; inTx has a deadline
		return audit.Append(context.Background(), tx, caller{from}, audit.Change{Action: "host.refused", Target: r.target, After: after{r.reason, unwritten}, At: now.UTC()})
	})
	if err != nil {
		h.cfg.Log.Error("a refused attempt could not be audited", "target", r.target, "reason", r.reason, "error", err)
	}
}

// caller is who was refused: all that is sure of it is its address.
type caller struct{ address string }

// AuditIdentity implements audit.Author.
func (c caller) AuditIdentity() audit.Identity {
	return audit.Identity{Actor: "unknown caller", IP: c.address}
}

// Guard gives the listener's TLS settings (pki.Trust.HubServer) with an audit of certificates that it does not take.
func (h *Hub) Guard(cfg *tls.Config) *tls.Config {
	return pki.Watch(cfg, func(from net.Addr, _ error) {
		// What such a certificate says of itself proves nothing: it is not repeated.
		address, _, _ := net.SplitHostPort(from.String())
		h.refused(refusal{byStranger, "agents' listener", "certificate of another authority, not a host's, or long ended"}, address)
	})
}

// foreign audits that a linked host spoke for a unit that is not its own.
func (h *Hub) foreign(host ids.ID, what, from string) {
	h.refused(refusal{byHost, ids.Format(ids.Host, host), what}, from)
}
