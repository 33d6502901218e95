package host

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"millrace/agents/host/fabric"
	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/internal/pki"
)

// Times and limits of measuring the ways to other hosts.
const (
	probeLook    = 2 * time.Second  // between looks for a peer whose turn it is
	probeRound   = 20 * time.Second // between two probes of this host
	probeAgain   = 10 * time.Minute // between two of one way
	probeTimeout = 10 * time.Second
	maxLinks     = 64     // told; the oldest are forgotten
	probeConns   = 8      // connections at once that ask for a probe
	AutoFabric   = "auto" // Config.FabricListen: the fastest interface's address, any port
)

// links is the ways to other hosts: whom the hub named, and what was measured.
type links struct {
	listener net.Listener // nil: nobody measures the way to this host
	server   *fabric.Server

	mu       sync.Mutex
	peers    []wire.Peer
	measured map[ids.ID]wire.PeerLink
	tried    map[ids.ID]time.Time
}

// openLinks opens the probe's listener, when there is to be one.
func (a *agent) openLinks() (err error) {
	a.links = &links{server: fabric.NewServer(a.cfg.Clock), measured: map[ids.ID]wire.PeerLink{}, tried: map[ids.ID]time.Time{}}
	address := a.cfg.FabricListen
	if address == AutoFabric {
		if address = a.eye.fabricAddress(); address == "" {
			a.log.Info("no interface for the fabric: the ways to other hosts are not measured")
		}
	}
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("the fabric's address: %w", err)
	}
	a.links.listener = tls.NewListener(l, a.self.trust.PeerServer(a.self.source))
	return nil
}

// fabricAddress is the fastest interface's that is up.
func (e *eye) fabricAddress() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var best wire.NIC
	for _, n := range e.inv.NICs {
		if n.Up && n.Address != "" && (best.Address == "" || n.Gbps > best.Gbps) {
			best = n
		}
	}
	if best.Address == "" {
		return ""
	}
	return net.JoinHostPort(best.Address, "0")
}

// answerProbes serves other hosts until ctx ends.
func (a *agent) answerProbes(ctx context.Context) {
	if a.links.listener == nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = a.links.listener.Close() })
	defer stop()
	places := make(chan struct{}, probeConns)
	var work sync.WaitGroup
	defer work.Wait()
	for {
		conn, err := a.links.listener.Accept()
		if err != nil {
			if ctx.Err() == nil {
				a.log.Error("other hosts cannot measure the way to this one any more", "error", err)
			}
			return
		}
		select {
		case places <- struct{}{}:
			work.Go(func() {
				defer func() { _ = conn.Close(); <-places }()
				a.answerProbe(ctx, conn.(*tls.Conn))
			})
		default:
			_ = conn.Close()
		}
	}
}

func (a *agent) answerProbe(ctx context.Context, conn *tls.Conn) {
	hello, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(hello); err != nil {
		return // not a host of ours
	}
	state := conn.ConnectionState()
	peer, err := pki.Peer(&state)
	if err == nil {
		err = a.links.server.Answer(ctx, conn, string(peer))
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, fabric.ErrBusy) {
		a.log.Debug("a peer's probe", "peer", peer, "error", err)
	}
}

// named takes the hub's word on whom to measure.
func (l *links) named(peers []wire.Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peers = peers
}

// probe measures one way after the other until ctx ends.
func (a *agent) probe(ctx context.Context) {
	for pause := probeLook; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause)): // a fleet that starts together does not probe together
		}
		peer, ok := a.links.next(a.cfg.Clock.Now())
		if pause = probeLook; !ok {
			continue
		}
		pause = probeRound
		r, err := a.measure(ctx, peer)
		if err != nil {
			a.log.Debug("the way to a host cannot be measured now", "peer", peer.Host, "error", err)
			continue
		}
		a.links.keep(wire.PeerLink{Peer: peer.Host.String(), Gbps: float64(int(r.Gbps*100)) / 100, RTT: r.RTT.Microseconds(), AtMS: a.cfg.Clock.Now().UnixMilli()}, peer.Host)
		a.eye.news()
	}
}

// next is the peer that waits longest for its turn.
func (l *links) next(now time.Time) (peer wire.Peer, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.peers {
		if now.Sub(l.tried[p.Host]) >= probeAgain && (!ok || l.tried[p.Host].Before(l.tried[peer.Host])) {
			peer, ok = p, true
		}
	}
	if ok {
		l.tried[peer.Host] = now
	}
	return peer, ok
}

// measure talks to the very host that the hub named: another one at its address is refused.
func (a *agent) measure(ctx context.Context, peer wire.Peer) (fabric.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", peer.Address)
	if err != nil {
		return fabric.Result{}, err
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	conn := tls.Client(raw, a.self.trust.Dial(a.self.source, pki.Host(peer.Host)))
	if err := conn.HandshakeContext(ctx); err != nil {
		return fabric.Result{}, err
	}
	return fabric.Measure(conn)
}

func (l *links) keep(link wire.PeerLink, peer ids.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measured[peer] = link
	for len(l.measured) > maxLinks {
		var oldest ids.ID
		for id, m := range l.measured {
			if oldest == ids.Nil || m.AtMS < l.measured[oldest].AtMS {
				oldest = id
			}
		}
		delete(l.measured, oldest)
	}
}

// tell fills in what is known of the ways.
func (l *links) tell(o *wire.Observed) {
	if l.listener != nil {
		o.ProbeAddress = l.listener.Addr().String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.measured {
		o.Links = append(o.Links, m)
	}
	slices.SortFunc(o.Links, func(x, y wire.PeerLink) int { return cmp.Compare(x.Peer, y.Peer) })
}
