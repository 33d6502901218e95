package link

import (
	"net"
	"sync"
)

// maxStreams bounds the streams that an agent may have open to its hub or gateway at once: each costs up to streamWindow.
// An agent needs a handful. The other way there is no bound: every request of a gateway is a stream.
const maxStreams = 64

// bounded is a listener that hangs up on whoever comes when all places are taken.
type bounded struct {
	net.Listener
	places chan struct{}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &placed{conn, sync.OnceFunc(func() { <-b.places })}, nil
		default:
			_ = conn.Close()
		}
	}
}

type placed struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
