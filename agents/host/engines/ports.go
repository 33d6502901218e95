package engines

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"

	"millrace/serving/engine"
)

// Engines' loopback ports lie below those that placement gives out in the fabric (from 23000), and both below the range
// from which Linux takes ports for outgoing connections (from 32768).
const (
	firstPort = 18000
	lastPort  = 22999
)

// Ports that an engine takes behind its HTTP port without being told: SGLang with several ranks counts its own sockets up
// from there, and two of them beside each other on a host would meet.
const (
	sglangDelta   = 233
	sglangSockets = 16
)

// ports keeps the ports that this agent has given out. Another program on the host may take one between the check and the
// engine's own listen: the engine then fails to start and gets others.
type ports struct {
	mu    sync.Mutex
	taken map[int]bool
	next  int // where to look first; 0 = not yet chosen
}

// ranksOf is how many data-parallel ranks an engine has on this host, or may grow to.
func ranksOf(s *engine.Spec) int {
	_, ranks := s.Ranks()
	return max(ranks, s.Elastic, 1)
}

// span is how many ports from its HTTP port on belong to an engine.
func span(f engine.Family, s *engine.Spec) int {
	if ranks := ranksOf(s); f == engine.SGLang && ranks > 1 {
		return sglangDelta + sglangSockets + ranks
	}
	return 1
}

// assign gives a spec the ports that are this host's to choose, and reserves those in the fabric that placement chose. What
// it took is to be given back also when it fails.
func (p *ports) assign(f engine.Family, s *engine.Spec, events bool) (taken []int, err error) {
	block := func(n int) int {
		if err != nil {
			return 0
		}
		var got []int
		if got, err = p.take(n); err != nil {
			return 0
		}
		taken = append(taken, got...)
		return got[0]
	}
	ranks := ranksOf(s)
	s.Port, s.KVPort, s.ReplayPort = block(span(f, s)), 0, 0
	if events && s.Role != engine.Encoder {
		s.KVPort, s.ReplayPort = block(ranks), block(ranks)
	}
	for _, r := range fabric(s) {
		if err == nil {
			err = p.reserve(s.Address, r.first, r.count)
			if err == nil {
				taken = append(taken, r.list()...)
			}
		}
	}
	return taken, err
}

// stretch is ports one after another.
type stretch struct{ first, count int }

func (r stretch) list() []int {
	out := make([]int, r.count)
	for i := range out {
		out[i] = r.first + i
	}
	return out
}

// fabric is the ports at the host's address in the fabric: a transfer's, one for each rank of data and tensor parallelism,
// and where a replica's hosts meet.
func fabric(s *engine.Spec) (out []stretch) {
	if s.Transfer != nil && s.Transfer.Port > 0 {
		out = append(out, stretch{s.Transfer.Port, ranksOf(s) * max(s.Parallel.Tensor, 1)})
	}
	if s.Nodes.Count > 1 && s.Nodes.Rank == 0 && s.Nodes.Port > 0 {
		out = append(out, stretch{s.Nodes.Port, 2})
	}
	if len(out) == 2 && out[0].first <= out[1].first && out[1].first < out[0].first+out[0].count {
		// Its own ports are in nobody's way: a transfer that begins before the meeting place is reserved up to its last rank.
		last := max(out[0].first+out[0].count, out[1].first+out[1].count)
		out = []stretch{{out[0].first, last - out[0].first}}
	}
	return out
}

// take reserves n free loopback ports one after another. It goes on from where the last ones were, so that long runs stay
// free, and begins anywhere, so that two agents of one host do not meet.
func (p *ports) take(n int) ([]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const all = lastPort - firstPort + 1
	if p.next == 0 {
		p.next = firstPort + rand.IntN(all)
	}
	for range all {
		r := stretch{p.next, n}
		if p.next++; p.next > lastPort {
			p.next = firstPort
		}
		if r.first+n-1 <= lastPort && p.free(r, "127.0.0.1") {
			if p.next = r.first + n; p.next > lastPort {
				p.next = firstPort
			}
			for _, port := range r.list() {
				p.taken[port] = true
			}
			return r.list(), nil
		}
	}
	return nil, fmt.Errorf("no %d free ports beside each other on loopback", n)
}

func (p *ports) free(r stretch, host string) bool {
	for _, port := range r.list() {
		if p.taken[port] || !free(host, port) {
			return false
		}
	}
	return true
}

// reserve takes ports that were chosen elsewhere. One that another engine of this host still has, or any program listens
// on, is an error: the engine waits for it.
func (p *ports) reserve(address string, first, n int) error {
	if address == "" {
		address = "127.0.0.1"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := stretch{first, n}
	if first < 1 || first+n > 1<<16 {
		return fmt.Errorf("the placement's ports %d to %d do not exist", first, first+n-1)
	}
	if !p.free(r, address) {
		return fmt.Errorf("a port between %d and %d at %s, which placement chose, is in use on this host", first, first+n-1, address)
	}
	for _, port := range r.list() {
		p.taken[port] = true
	}
	return nil
}

// keep notes the ports of an engine that runs already.
func (p *ports) keep(all []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range all {
		p.taken[port] = true
	}
}

func (p *ports) give(back []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range back {
		delete(p.taken, port)
	}
}

// free reports whether nobody listens. An address that this host does not have is the engine's to complain about.
func free(host string, port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return host != "127.0.0.1" && !errors.Is(err, syscall.EADDRINUSE)
	}
	return l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func zmq(port int) string { return fmt.Sprintf("tcp://%s", loopback(port)) }
