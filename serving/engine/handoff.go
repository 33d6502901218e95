package engine

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"

	"millrace/internal/usage"
)

// Handoff is how a prefill engine (P) hands a prompt's cache to a decode engine (D): the bodies of both legs, what P
// answers, and how a leg is called off. It is pure: it knows no connection and no clock, and draws no randomness but what
// Mint is given. Bodies come from PrepareChat; what a client may not set has been taken out there.
type Handoff interface {
	// Name is the mode, for logs and tests.
	Name() string
	// Concurrent says that D is asked at the same time as P; else D is asked once P has answered.
	Concurrent() bool
	// Holds says that P answers only once D has taken the cache.
	Holds() bool
	// Alone says that D computes a prompt itself when it is told of no P.
	Alone() bool
	// Mint draws what an attempt's two legs have in common. Nothing of it is ever used for another attempt.
	Mint(random io.Reader, from Peer) (HandoffIDs, error)
	// Prefill appends P's body.
	Prefill(dst, body []byte, h Handover) []byte
	// Read takes in P's answer.
	Read(answer []byte) (Handed, error)
	// Decode appends D's body. In a mode that is Concurrent, Handed is not known yet.
	Decode(dst, body []byte, h Handover, handed *Handed) []byte
	// Abort is the engine's own verb for calling a leg off, beside closing its connection.
	Abort(h Handover) Abort
}

// HandoffIDs are drawn afresh for every attempt.
type HandoffIDs struct {
	Request  string // of both legs: engines derive their own from it
	Transfer string // names the transfer where engines ask for a name
	Room     int64  // or for a number: 63 bits
}

// Peer is where a prefill engine is in the fabric, and what it is made of. It comes from the engine's spec, never from a
// client.
type Peer struct {
	Engine   string // the id that it has for its peers
	Host     string
	Port     int // of its side channel or bootstrap server
	Parallel Parallel
	Rank     int // the data-parallel rank that is wanted, -1 = any
}

// PeerOf is the peer that an engine is to those that take its cache.
func PeerOf(s *Spec) Peer {
	p := Peer{Host: s.Address, Parallel: s.Parallel, Rank: -1}
	if p.Host == "" {
		p.Host = "127.0.0.1"
	}
	if s.Transfer != nil {
		p.Engine, p.Port = s.Transfer.Engine, s.Transfer.Port
	}
	return p
}

func (p *Peer) address() string { return net.JoinHostPort(p.Host, strconv.Itoa(p.Port)) }

// Handover is one attempt of one request.
type Handover struct {
	IDs  HandoffIDs
	From Peer
}

// Handed is what P answered.
type Handed struct {
	Params   []byte // for D, verbatim; nil = P gave none, D would have to compute all of it
	Tokens   []byte // the prompt's token ids, a JSON array, where D takes these
	Complete bool   // P's answer is the whole answer: there is nothing for D to do
	Report   Report // of P: what the prompt is billed by
	Reported bool   // P said what it used
}

// Abort is a request that calls a leg off; an empty Path means that closing the connection does.
type Abort struct {
	Path string
	Body []byte
}

// Handoffs is what a driver implements whose engines can share a request.
type Handoffs interface {
	// Handoff finds the mode by the names that a recipe has for it.
	Handoff(t Transfer) (Handoff, error)
}

// HandoffOf finds how a driver's engines hand over.
func HandoffOf(d Driver, t Transfer) (Handoff, error) {
	h, ok := d.(Handoffs)
	if !ok {
		return nil, errCannot(d.Family(), "hands no cache over")
	}
	return h.Handoff(t)
}

func noHandoff(f Family, t Transfer) error {
	return errCannot(f, fmt.Sprintf("has no hand-over %q by %q", t.Mode, t.Backend))
}

// JoinReports is the usage of a request whose prompt P computed and whose answer D generated: prompt and cached from P,
// since D would call the whole prompt cached; what was generated from D, since P's one token is D's first.
func JoinReports(p, d Report) Report {
	joined := Report{Vector: p.Vector, CachedKnown: p.CachedKnown}
	joined.Vector[usage.Output], joined.Vector[usage.Reasoning] = d.Vector[usage.Output], d.Vector[usage.Reasoning]
	joined.Vector[usage.Requests] = 1
	if len(p.Raw) > 0 && len(d.Raw) > 0 {
		joined.Raw = fmt.Appendf(nil, `{"prefill":%s,"decode":%s}`, p.Raw, d.Raw)
	}
	return joined
}

// room draws a number of 63 bits. Where a rank of P is wanted, it is one that P's ranks take to be that rank's: the number
// modulo how many there are.
func room(random io.Reader, from Peer) (int64, error) {
	n, err := number63(random)
	if ranks := int64(from.Parallel.data()); err == nil && from.Rank >= 0 && ranks > 1 {
		n = n - n%ranks + int64(from.Rank)
		if n < 0 { // over the edge: one round less
			n -= ranks
		}
	}
	return n, err
}

func number63(random io.Reader) (int64, error) {
	var b [8]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return 0, fmt.Errorf("engine: no randomness for a hand-over: %w", err)
	}
	return int64(binary.BigEndian.Uint64(b[:]) >> 1), nil
}

// name draws an id of 32 hexadecimal digits.
func name(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("engine: no randomness for a hand-over: %w", err)
	}
	return fmt.Sprintf("%x", b), nil
}
