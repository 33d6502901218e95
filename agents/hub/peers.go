package hub

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
)

// Limits of measuring.
const (
	peersKept = 10 * time.Second // how long the list of hosts is used
	peersEach = 8                // named to one host at a time
	peersTurn = 10 * time.Minute // then it is others' turn
)

// peers names hosts to each other, for their agents to measure the ways between them. What an agent may dial comes from
// here alone: addresses that hosts told of themselves, under the identities that they must prove there.
type peers struct {
	mu       sync.Mutex
	read     time.Time
	networks map[string][]wire.Peer // ordered by id
	of       map[ids.ID]string
}

// named gives some hosts of the same network, others every turn, so that in time every way is measured.
func (h *Hub) named(ctx context.Context, host ids.ID) []wire.Peer {
	p := &h.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	now := h.cfg.Clock.Now()
	if now.Sub(p.read) >= peersKept {
		p.read = now
		if err := h.readPeers(ctx); err != nil && ctx.Err() == nil {
			h.cfg.Log.Warn("hub: the hosts to measure cannot be read now", "error", err)
		}
	}
	return turn(p.networks[p.of[host]], host, int(now.Unix()/int64(peersTurn/time.Second)))
}

// turn takes the next peers behind a host in the ring of its network.
func turn(ring []wire.Peer, host ids.ID, n int) (out []wire.Peer) {
	at, there := slices.BinarySearchFunc(ring, host, func(p wire.Peer, id ids.ID) int { return bytes.Compare(p.Host[:], id[:]) })
	others := len(ring) - 1
	if !there || others < 1 {
		return nil
	}
	for i := range min(peersEach, others) {
		skip := (n*peersEach + i) % others
		out = append(out, ring[(at+1+skip)%len(ring)])
	}
	return out
}

func (h *Hub) readPeers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var rows []q.ProbeAddressesRow
	err := h.cfg.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		rows, err = q.New(tx).ProbeAddresses(ctx)
		return err
	})
	if err != nil {
		return err
	}
	h.peers.networks, h.peers.of = map[string][]wire.Peer{}, map[ids.ID]string{}
	for _, r := range rows {
		if _, _, err := net.SplitHostPort(r.Address); err == nil {
			h.peers.networks[r.Network] = append(h.peers.networks[r.Network], wire.Peer{Host: r.ID, Address: r.Address})
			h.peers.of[r.ID] = r.Network
		}
	}
	return nil
}
