// Package fabric measures the way between two hosts, from agent to agent: round trip and throughput of one TCP stream with
// TLS, which is what is sure to get through. RDMA is faster; a way that is slow or closed here is so there.
//
// It owns the probe's few bytes of protocol and its bounds; whom to ask is the hub's to say, and who may ask is decided by
// the connection (package pki).
//
// Invariants: a host answers one probe at a time, and one peer not more often than answerEvery; a probe moves at most
// probeBytes and takes at most probeTime beyond its first bytes.
package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"millrace/internal/clock"
)

// Bounds of a probe.
const (
	probeBytes  = 64 << 20
	probeTime   = time.Second
	probeLimit  = 10 * time.Second // for all of it, the connection too
	answerEvery = 30 * time.Second // per peer
	maxPeers    = 10_000           // remembered
	pings       = 5
	chunk       = 256 << 10
	warmShare   = 8 // the first part of the stream, until TCP has found its pace, is not counted
)

// What a client says.
const (
	sayPing = 'P' // the same byte comes back
	saySend = 'S' // and a number of bytes, 4 bytes, big-endian: so many come
)

// Result is a way as it was measured.
type Result struct {
	Gbps float64
	RTT  time.Duration
}

// Measure probes the host at the other end of a connection.
func Measure(conn net.Conn) (Result, error) {
	var r Result
	if err := conn.SetDeadline(time.Now().Add(probeLimit)); err != nil {
		return r, err
	}
	var one [1]byte
	for range pings {
		began := time.Now()
		if _, err := conn.Write([]byte{sayPing}); err != nil {
			return r, err
		}
		if _, err := io.ReadFull(conn, one[:]); err != nil {
			return r, err
		}
		if took := time.Since(began); r.RTT == 0 || took < r.RTT {
			r.RTT = took
		}
	}
	ask := binary.BigEndian.AppendUint32([]byte{saySend}, probeBytes)
	if _, err := conn.Write(ask); err != nil {
		return r, err
	}
	var err error
	r.Gbps, err = receive(conn)
	return r, err
}

// receive counts what comes until the other side ends it.
func receive(conn net.Conn) (gbps float64, err error) {
	buf := make([]byte, chunk)
	var all, counted int64
	var began time.Time
	for {
		n, err := conn.Read(buf)
		all += int64(n)
		switch {
		case !began.IsZero():
			counted += int64(n)
		case all >= probeBytes/warmShare:
			began = time.Now()
		}
		if all > probeBytes {
			return 0, errors.New("fabric: the peer sends more than it was asked for")
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
		took := time.Since(began)
		if began.IsZero() || counted == 0 || took <= 0 {
			return 0, errors.New("fabric: the way is too slow to be measured, or the peer was busy")
		}
		return float64(counted) * 8 / took.Seconds() / 1e9, nil
	}
}

// Server answers probes. It is safe for concurrent use.
type Server struct {
	clock clock.Clock

	mu   sync.Mutex
	busy bool
	last map[string]time.Time // by peer
}

// NewServer makes one.
func NewServer(c clock.Clock) *Server { return &Server{clock: c, last: map[string]time.Time{}} }

// ErrBusy says that the peer must come later.
var ErrBusy = errors.New("fabric: another probe runs, or the peer was here a moment ago")

// Answer serves one connection of a peer, by its verified name, until it ends.
func (s *Server) Answer(ctx context.Context, conn net.Conn, peer string) error {
	if !s.begin(peer) {
		return ErrBusy
	}
	defer s.end()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(probeLimit)); err != nil {
		return err
	}
	for range pings {
		var one [1]byte
		if _, err := io.ReadFull(conn, one[:]); err != nil || one[0] != sayPing {
			return errors.Join(err, errors.New("fabric: this is no probe"))
		}
		if _, err := conn.Write(one[:]); err != nil {
			return err
		}
	}
	var ask [5]byte
	if _, err := io.ReadFull(conn, ask[:]); err != nil || ask[0] != saySend {
		return errors.Join(err, errors.New("fabric: this is no probe"))
	}
	return send(conn, min(int64(binary.BigEndian.Uint32(ask[1:])), probeBytes))
}

func send(conn net.Conn, n int64) error {
	buf := make([]byte, chunk)
	for end := time.Now().Add(probeTime); n > 0 && time.Now().Before(end); {
		wrote, err := conn.Write(buf[:min(n, chunk)])
		if err != nil {
			return err
		}
		n -= int64(wrote)
	}
	return nil
}

func (s *Server) begin(peer string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.busy || now.Sub(s.last[peer]) < answerEvery {
		return false
	}
	if len(s.last) >= maxPeers {
		clear(s.last)
	}
	s.busy, s.last[peer] = true, now
	return true
}

func (s *Server) end() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
}
