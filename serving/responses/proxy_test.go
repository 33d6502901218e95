package responses_test

import (
	"bytes"
	"context"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"millrace/db"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol/responses/responsestest"
	"millrace/serving/responses"
)

// proxy stands between a gateway and the database: it can lose the answer to a commit.
type proxy struct {
	listener         net.Listener
	network, address string
	lose             atomic.Bool
	lost             atomic.Int64 // commits that took place unheard
}

// proxied gives the database by way of a proxy.
func (w *world) proxied() (*proxy, *db.DB) {
	w.t.Helper()
	cfg, err := pgconn.ParseConfig(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &proxy{}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		w.t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(p.accept)
	w.t.Cleanup(func() { p.listener.Close(); accepting.Wait() })
	through := url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: p.listener.Addr().String(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	d, err := db.Open(w.t.Context(), through.String(), db.Options{MaxConns: 4})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(d.Close)
	return p, d
}

func (p *proxy) accept() {
	var relays sync.WaitGroup
	defer relays.Wait()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.address)
		if err != nil {
			client.Close()
			continue
		}
		var deaf atomic.Bool
		relays.Go(func() {
			relay(client, server, func(b []byte) bool {
				if bytes.Contains(b, []byte("commit\x00")) && p.lose.CompareAndSwap(true, false) {
					deaf.Store(true)
				}
				return true
			})
		})
		relays.Go(func() {
			relay(server, client, func([]byte) bool {
				if deaf.Load() {
					p.lost.Add(1)
				}
				return !deaf.Load()
			})
		})
	}
}

func relay(from, to net.Conn, pass func([]byte) bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Events whose commit got no answer are written again, and are there once.
func TestEventsWhoseCommitGotNoAnswer(t *testing.T) {
	first, second := make(chan struct{}), make(chan struct{})
	cut := strings.Index(says, "data: [DONE]")
	w := newWorld(t, gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
		gatetest.Send(c, gatetest.StreamHead)
		<-first
		gatetest.Send(c, gatetest.Chunk(`data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":null}]}`+"\n\n"))
		<-second
		gatetest.Send(c, gatetest.Chunk(says[:cut]), gatetest.Chunk(says[cut:]), "0\r\n\r\n")
		return true
	}))
	p, through := w.proxied()
	o := w.options
	o.DB = through
	w.one = responses.New(o)
	id := w.start(background + `,"stream":true}`)
	w.awaits(id, "in_progress")
	p.lose.Store(true)
	close(first)
	for deadline := time.Now().Add(patience); p.lost.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was committed")
		}
	}
	close(second)
	w.awaits(id, "completed")
	w.drain(patience)
	out := httptest.NewRecorder()
	ctx, cancel := context.WithTimeout(t.Context(), patience) // events that are missing are waited for
	defer cancel()
	if err := w.two.Follow(ctx, w.Caller, id, -1, out); err != nil {
		t.Fatal(err)
	}
	if got, err := responsestest.Check(out.Body.Bytes()); err != nil || got.Items[0].Text != "ba" {
		t.Fatalf("%v %s", err, out.Body)
	}
}
