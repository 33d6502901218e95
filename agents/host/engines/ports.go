package engines

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Engines' ports lie below the range from which Linux takes ports for outgoing connections.
const (
	firstPort = 18000
	lastPort  = 31999
	portTries = 200
)

// ports keeps the ports that this agent has given out. Another agent on the host may take one between the check and the
// engine's own listen: the engine then fails to start and gets others.
type ports struct {
	mu    sync.Mutex
	taken map[int]bool
}

// take reserves n free loopback ports.
func (p *ports) take(n int) ([]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]int, 0, n)
	for range portTries {
		if len(out) == n {
			break
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if p.taken[port] || !free(port) {
			continue
		}
		p.taken[port] = true
		out = append(out, port)
	}
	if len(out) < n {
		p.release(out)
		return nil, errors.New("no free port on loopback")
	}
	return out, nil
}

// run reserves n free loopback ports, one after another: ranks of an engine have theirs side by side.
func (p *ports) run(n int) ([]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range portTries {
		first := firstPort + rand.IntN(lastPort-firstPort+2-n)
		out := make([]int, 0, n)
		for port := first; port < first+n && !p.taken[port] && free(port); port++ {
			p.taken[port] = true
			out = append(out, port)
		}
		if len(out) == n {
			return out, nil
		}
		p.release(out)
	}
	return nil, fmt.Errorf("no %d free ports side by side on loopback", n)
}

func (p *ports) give(back []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(back)
}

func (p *ports) release(back []int) {
	for _, port := range back {
		delete(p.taken, port)
	}
}

func free(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func zmq(port int) string { return fmt.Sprintf("tcp://%s", loopback(port)) }
