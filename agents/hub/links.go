package hub

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// hostLink is one host's link, or the memory of one that broke a moment ago.
type hostLink struct {
	id      ids.ID
	address string        // of the agent
	link    *link.Link    // nil: broken
	since   time.Time     // linked, or broken, since
	moved   chan struct{} // closed and replaced when desires changes
	joined  time.Time     // when the host joined last, as the link was made: a later join ends it
	desires int64         // the generation that was last seen in the database
	stored  string        // the observation that was last written
}

// accept takes an agent's link and stays with it.
func (h *Hub) accept(w http.ResponseWriter, r *http.Request) {
	host, err := h.known(r)
	if err == nil && h.trust.Lapsed(r.TLS) {
		err = fault.New(fault.Unauthenticated, "The certificate has ended: renew it first.")
	}
	if err != nil {
		f := fault.Of(err)
		http.Error(w, f.Message, f.Kind.Status())
		return
	}
	me := &hostLink{id: host.ID, address: remoteIP(r), since: h.cfg.Clock.Now(), moved: make(chan struct{}), joined: host.JoinedAt, desires: host.Generation}
	l, err := link.Accept(w, r, h.linked(me), h.cfg.Log)
	if err != nil {
		h.cfg.Log.Warn("an agent's link failed", "host", host.Name, "error", err)
		return
	}
	defer l.Close()
	if !h.enter(me, l) {
		return
	}
	defer h.alive.Done()
	h.cfg.Log.Info("a host is linked", "host", host.Name)
	<-l.Done()
	h.leave(me)
	h.cfg.Log.Info("a host's link broke", "host", host.Name)
}

// enter makes the link the host's one: a newer link replaces an older, which the agent has given up.
func (h *Hub) enter(me *hostLink, l *link.Link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return false
	}
	old := h.links[me.id]
	me.link = l
	h.links[me.id] = me
	h.alive.Add(1)
	if old != nil && old.link != nil {
		h.alive.Go(old.link.Close) // it waits for the old one's end
	}
	h.fleet.linked(me.id)
	return true
}

// desires gives the generation that was last seen, and a channel that is closed when it moves.
func (h *Hub) desires(me *hostLink) (int64, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return me.desires, me.moved
}

// current reports whether the link is the host's newest: an older one's stream must not speak any more.
func (h *Hub) current(me *hostLink) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.links[me.id] == me
}

func (h *Hub) leave(me *hostLink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	me.link, me.since = nil, h.cfg.Clock.Now()
}

func (h *Hub) breakLinks() {
	h.mu.Lock()
	h.gone = true
	links := slices.Collect(maps.Values(h.links))
	var open []*link.Link
	for _, l := range links {
		if l.link != nil {
			open = append(open, l.link)
		}
	}
	h.mu.Unlock()
	for _, l := range open {
		l.Close()
	}
}

// linked is what an agent may call over its link.
func (h *Hub) linked(me *hostLink) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST "+wire.PathSync, h.answer(func(r *http.Request) (any, error) { return h.sync(r, me) }))
	m.HandleFunc("POST "+wire.PathFacts, h.answer(func(r *http.Request) (any, error) { return nil, h.facts(r, me) }))
	m.HandleFunc("GET "+wire.PathProgram, h.program)
	m.HandleFunc("POST "+wire.PathJournal, h.answer(func(r *http.Request) (any, error) { return nil, h.store(r, me) }))
	return new(pace).paced(m)
}

// DialLink opens a stream to a host's data plane through its link: for hosts that gateways cannot reach.
func (h *Hub) DialLink(host ids.ID) (net.Conn, error) {
	h.mu.Lock()
	var l *link.Link
	if me := h.links[host]; me != nil {
		l = me.link
	}
	h.mu.Unlock()
	if l == nil {
		return nil, fault.New(fault.Unavailable, "The host has no link to this process.").WithCode("host_not_linked")
	}
	return l.Open()
}

// watch tells gateways when a host's link is gone for good, or the host has fallen silent.
func (h *Hub) watch(ctx context.Context) {
	round := time.NewTicker(watchEvery)
	defer round.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
		}
		now := h.cfg.Clock.Now()
		h.mu.Lock()
		var lost []ids.ID
		for id, l := range h.links {
			if l.link == nil && now.Sub(l.since) >= wire.LinkGrace {
				lost = append(lost, id)
				delete(h.links, id)
			}
		}
		h.mu.Unlock()
		for _, id := range lost {
			h.fleet.lost(id)
		}
		h.fleet.silent(now)
	}
}

// lookAgain finds out which hosts' desired state has moved, marks linked hosts as alive and breaks the links of hosts that
// were removed or joined again.
func (h *Hub) lookAgain(ctx context.Context) {
	round := time.NewTicker(lookEvery)
	defer round.Stop()
	var seen time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
		case <-h.look:
		}
		see := h.cfg.Clock.Now().Sub(seen) >= seeEvery
		if err := h.lookOnce(ctx, see); err != nil {
			if ctx.Err() == nil {
				h.cfg.Log.Warn("hub: desired state cannot be read now", "error", err)
			}
			continue
		}
		if see {
			seen = h.cfg.Clock.Now()
		}
	}
}

func (h *Hub) lookOnce(ctx context.Context, see bool) error {
	h.mu.Lock()
	hosts := slices.Collect(maps.Keys(h.links))
	h.mu.Unlock()
	if len(hosts) == 0 {
		return nil
	}
	var rows []q.SeeHostsRow
	err := h.inTx(ctx, func(tx pgx.Tx) (err error) {
		if see {
			rows, err = q.New(tx).SeeHosts(ctx, hosts)
			return err
		}
		var same []q.HostGenerationsRow
		same, err = q.New(tx).HostGenerations(ctx, hosts)
		rows = rows[:0]
		for _, r := range same {
			rows = append(rows, q.SeeHostsRow(r))
		}
		return err
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range rows {
		me := h.links[r.ID]
		switch {
		case me == nil:
		case (r.Removed || r.JoinedAt.After(me.joined)) && me.link != nil:
			h.alive.Go(me.link.Close)
		case r.Generation != me.desires:
			me.desires = r.Generation
			close(me.moved)
			me.moved = make(chan struct{})
		}
	}
	return nil
}
