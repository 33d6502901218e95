package dial

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"millrace/agents/link"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/pki"
)

// linksEach bounds the data links of one host to this gateway: a newer one replaces the oldest.
const linksEach = 8

// Links are the data links to this gateway: hosts that nobody can dial dial it, several times, so that one slow stream or
// one broken connection does not hold all of a host's requests. It is the handler of wire.PathData, to be served with
// pki.Trust.PeerServer settings, and safe for concurrent use.
type Links struct {
	log *slog.Logger

	mu     sync.Mutex
	hosts  map[ids.ID]*linked
	closed bool
	alive  sync.WaitGroup
}

// linked is one host's links.
type linked struct {
	all  []*dataLink
	next int // links take turns
}

type dataLink struct {
	*link.Link

	peer *tls.ConnectionState
}

// NewLinks makes an empty set.
func NewLinks(log *slog.Logger) *Links { return &Links{log: log, hosts: map[ids.ID]*linked{}} }

// ServeHTTP takes a host's link and stays with it.
func (l *Links) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, err := pki.Peer(r.TLS)
	host, ok := name.HostID()
	if err != nil || !ok {
		http.Error(w, "hosts only", http.StatusForbidden)
		return
	}
	accepted, err := link.Accept(w, r, http.NotFoundHandler(), l.log)
	if err != nil {
		l.log.Warn("a host's data link failed", "host", host, "error", err)
		return
	}
	defer accepted.Close()
	mine := &dataLink{accepted, r.TLS}
	if !l.enter(host, mine) {
		return
	}
	defer l.alive.Done()
	<-accepted.Done()
	l.leave(host, mine)
}

func (l *Links) enter(host ids.ID, mine *dataLink) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.alive.Add(1)
	h := l.hosts[host]
	if h == nil {
		h = &linked{}
		l.hosts[host] = h
	}
	h.all = append(h.all, mine)
	if len(h.all) > linksEach {
		at := first(h.all)
		l.alive.Go(h.all[at].Close)
		h.all = slices.Delete(h.all, at, at+1)
	}
	return true
}

// first is the link to give up: the oldest of those whose certificate was made first, so that who holds an identity that a
// later join ended cannot push the host's own links out.
func first(all []*dataLink) (at int) {
	for i, d := range all {
		if d.issued().Before(all[at].issued()) {
			at = i
		}
	}
	return at
}

func (d *dataLink) issued() time.Time { return d.peer.PeerCertificates[0].NotBefore }

func (l *Links) leave(host ids.ID, mine *dataLink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	if h == nil {
		return
	}
	h.all = slices.DeleteFunc(h.all, func(d *dataLink) bool { return d == mine })
	if len(h.all) == 0 {
		delete(l.hosts, host)
	}
}

// Count is how many links a host has here.
func (l *Links) Count(host ids.ID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hosts[host]; h != nil {
		return len(h.all)
	}
	return 0
}

// open makes a stream to a host that joined at a time. A link of an identity that a later join ended is broken.
func (l *Links) open(host ids.ID, joined time.Time) (net.Conn, error) {
	var ended error
	for range linksEach {
		d := l.pick(host)
		if d == nil {
			break
		}
		if err := current(d.peer, joined); err != nil {
			ended = fmt.Errorf("dial: host %s: %w", host, err)
			l.drop(host, d)
			continue
		}
		if conn, err := d.Open(); err == nil {
			return conn, nil
		}
		l.drop(host, d)
	}
	if ended != nil {
		return nil, ended
	}
	return nil, fault.New(fault.Unavailable, "The host has no link to this gateway.").WithCode("host_not_linked")
}

func (l *Links) pick(host ids.ID) *dataLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	if h == nil || len(h.all) == 0 {
		return nil
	}
	h.next++
	return h.all[h.next%len(h.all)]
}

func (l *Links) drop(host ids.ID, d *dataLink) {
	l.leave(host, d)
	d.Close()
}

// Close breaks every link and waits for them.
func (l *Links) Close() {
	l.mu.Lock()
	l.closed = true
	var all []*dataLink
	for _, h := range l.hosts {
		all = append(all, h.all...)
	}
	l.mu.Unlock()
	for _, d := range all {
		d.Close()
	}
	l.alive.Wait()
}
