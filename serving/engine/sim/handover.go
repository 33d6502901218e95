package sim

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"millrace/internal/fault"
)

// transferPath is the side channel, which stands for what moves blocks between engines.
const transferPath = "/sim/transfer"

// wanted is what a decode engine asks of a prefill engine.
type wanted struct {
	Name string `json:"name"`
	Wait bool   `json:"wait"`
}

// errDead is what a dead engine answers: its HTTP server goes on, nothing behind it does.
func errDead() error {
	return fault.New(fault.Internal, "EngineCore encountered an issue. See stack trace (above) for the root cause.").WithCode("EngineDeadError")
}

// die ends the engine but not its HTTP server, as an assertion or a scheduler's crash does.
func (e *Engine) die(why string) {
	if e.dead.Swap(true) {
		return
	}
	e.stats.deaths.Add(1)
	e.why.Store(&why)
	e.sched.endAll()
	e.sched.forgetAll()
}

// meet does what comes before a request is computed: a prefill announces its cache, a decode fetches its peer's. left undoes
// it when the request ends; it may be called always.
func (e *Engine) meet(ctx context.Context, q *request, f *Faults) (left func(), err error) {
	left = func() {}
	if q.hand, err = e.hand(q); err != nil {
		return left, err
	}
	h := &q.hand
	switch {
	case h.lost:
		e.stats.recomputed.Add(1)
	case h.offers != "":
		if q.offer = e.sched.offerFor(h.offers); q.offer == nil {
			if h.room {
				e.die("the scheduler met the room " + h.offers + " twice")
			}
			return left, errDead()
		}
		return func() { e.sched.withdraw(h.offers, q.offer, h.stays) }, nil
	case h.takes != "":
		return left, e.take(ctx, q, f)
	}
	return left, nil
}

// take fetches a peer's cache. Without it the request fails: a load that failed is not made good by computing.
func (e *Engine) take(ctx context.Context, q *request, f *Faults) error {
	h := &q.hand
	if h.room && !e.enterRoom(h.takes) {
		e.die("the scheduler met the " + h.takes + " twice")
		return errDead()
	}
	if h.room {
		defer e.leaveRoom(h.takes)
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.PeerWait)
	defer cancel()
	err := e.fetch(ctx, h)
	if err == nil && f.TransferFails {
		err = fmt.Errorf("the transfer was broken off")
	}
	if err != nil {
		e.stats.transferFailed.Add(1)
		return fault.New(fault.Internal, "KV transfer failed: %v", err).WithCode("InternalServerError")
	}
	q.taken = true
	e.stats.transfers.Add(1)
	return nil
}

func (e *Engine) enterRoom(name string) bool {
	e.roomsMu.Lock()
	defer e.roomsMu.Unlock()
	if e.rooms[name] {
		return false
	}
	e.rooms[name] = true
	return true
}

func (e *Engine) leaveRoom(name string) {
	e.roomsMu.Lock()
	defer e.roomsMu.Unlock()
	delete(e.rooms, name)
}

// fetch asks the peer for the cache and waits until it has come over.
func (e *Engine) fetch(ctx context.Context, h *handing) error {
	body, err := json.Marshal(wanted{h.takes, h.waits})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.from+transferPath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := e.peers.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the peer answered %s", resp.Status)
	}
	return nil
}

// serveTransfer gives a cache to a peer.
func (e *Engine) serveTransfer(w http.ResponseWriter, r *http.Request) {
	var q wanted
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&q); err != nil {
		e.writeError(w, invalid("body", "This asks for no transfer: %v", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), e.cfg.PeerWait)
	defer cancel()
	takes := func() bool {
		if ms := e.faults.transferMS(); ms > 0 { // what has begun goes on, also when the peer leaves
			time.Sleep(time.Duration(ms) * time.Millisecond)
		}
		return true
	}
	if e.dead.Load() || !e.sched.handOver(ctx, q.Name, q.Wait, takes) {
		w.WriteHeader(http.StatusNotFound)
	}
}

// serveSideChannel answers peers at an address of its own, where there is one.
func (e *Engine) serveSideChannel(ctx context.Context, tasks *sync.WaitGroup) error {
	if e.cfg.TransferAddress == "" {
		return nil
	}
	ln, err := net.Listen("tcp", e.cfg.TransferAddress)
	if err != nil {
		return fmt.Errorf("sim: side channel: %w", err)
	}
	m := http.NewServeMux()
	m.HandleFunc("POST "+transferPath, e.serveTransfer)
	srv := &http.Server{Handler: m, ReadHeaderTimeout: headerTimeout}
	tasks.Go(func() { _ = srv.Serve(ln) }) // its end is told by Close
	tasks.Go(func() { <-ctx.Done(); _ = srv.Close() })
	return nil
}

// address is where peers reach this engine's side channel.
func (e *Engine) address() (host string, port int) {
	if h, p, err := net.SplitHostPort(e.cfg.TransferAddress); err == nil {
		if port, err = strconv.Atoi(p); err == nil {
			return h, port
		}
	}
	return "127.0.0.1", max(e.cfg.Port, 1)
}

// transferParams is what a prefill engine hands to the decode engine, as vLLM's NIXL connector (pull) does; nil where the
// connector gives none.
func (e *Engine) transferParams(a *answering, s *sequence) []byte {
	if !a.q.transfer.RemoteDecode || a.q.transfer.TransferID != "" || a.faults.NoParams {
		return nil
	}
	blocks := make([]int, (s.prompt+e.cfg.BlockSize-1)/e.cfg.BlockSize)
	for i := range blocks {
		blocks[i] = i
	}
	host, port := e.address()
	b, _ := json.Marshal(map[string]any{ // plain values always marshal
		"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [][]int{blocks}, "remote_engine_id": e.id,
		"remote_request_id": "chatcmpl-" + a.q.id, "remote_host": host, "remote_port": port,
		"tp_size": 1, "dcp_size": 1, "pp_size": 1, "remote_num_tokens": s.prompt, "remote_blocks_expiry_time": nil,
		"transfer_mode": "pull", "remote_prefill_cached_tokens": s.cached.Load(),
	})
	return b
}

// encodedParams is what an encoder tells of an image: where its embedding lies, by the image's hash.
func (e *Engine) encodedParams(q *request) map[string]any {
	host, port := e.address()
	return map[string]any{fmt.Sprintf("%016x", xxhash.Sum64(q.messages)): map[string]any{"peer_host": host, "peer_port": port, "size_bytes": len(q.messages)}}
}

// contextParams is TensorRT-LLM's, in a choice. The state is opaque: it says where this engine is.
func (e *Engine) contextParams(q *request) map[string]any {
	host, port := e.address()
	return map[string]any{"request_type": "context_only", "disagg_request_id": q.disagg.ID, "ctx_request_id": q.disagg.ID, "first_gen_tokens": []int{7},
		"encoded_opaque_state": base64.StdEncoding.EncodeToString([]byte(net.JoinHostPort(host, strconv.Itoa(port))))}
}

// waitTaken holds a prefill's answer back until its cache was fetched, where engines do that. False: it was not.
func (e *Engine) waitTaken(ctx context.Context, q *request) bool {
	if q.offer == nil || !q.hand.stays {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.PeerWait)
	defer cancel()
	select {
	case <-q.offer.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// Handovers is what an engine keeps and has done for its peers, for tests and metrics.
type Handovers struct {
	Names      int   // in use: rooms and announced caches
	Blocks     int   // lent
	Running    int   // requests, waiting ones too
	Transfers  int64 // caches given or taken
	Failed     int64 // that did not come
	Recomputed int64 // prompts computed because nothing said where their cache is
	Expired    int64 // leases
	Deaths     int64
}

// Handovers reads the counters.
func (e *Engine) Handovers() Handovers {
	names, blocks := e.sched.lent()
	running, queued, _, _ := e.sched.load()
	e.roomsMu.Lock()
	names += len(e.rooms)
	e.roomsMu.Unlock()
	s := &e.stats
	return Handovers{Names: names, Blocks: blocks, Running: running + queued, Transfers: s.transfers.Load(), Failed: s.transferFailed.Load(),
		Recomputed: s.recomputed.Load(), Expired: s.expired.Load(), Deaths: s.deaths.Load()}
}
