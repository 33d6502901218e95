package credit_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"millrace/db"
	"millrace/db/dbtest"
)

// proxy stands between a gateway and the database: it can be cut, and it can lose the answer to a commit.
type proxy struct {
	listener         net.Listener
	network, address string
	down             atomic.Bool
	loseCommit       atomic.Bool
	lost             atomic.Int64 // commits that took place unheard
	mu               sync.Mutex
	conns            []net.Conn
}

// proxied opens a house whose tests see the database, and a second pool through a proxy for the gateway.
func proxied(t *testing.T) (*house, *proxy, *db.DB) {
	t.Helper()
	raw := dbtest.URL(t)
	cfg, err := pgconn.ParseConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(p.accept)
	t.Cleanup(func() { p.listener.Close(); p.cut(); accepting.Wait() })
	through := url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: p.listener.Addr().String(),
		Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	h := &house{db: dial(t, raw), bus: dbtest.Bus(t), locks: t.TempDir()}
	h.desk = newDesk(h)
	return h, p, dial(t, through.String())
}

func dial(t *testing.T, url string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), url, db.Options{MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
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
		if err != nil || p.down.Load() {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		var lose atomic.Bool
		relays.Go(func() { p.relay(client, server, func(b []byte) bool { return p.request(b, &lose) }) })
		relays.Go(func() { p.relay(server, client, func([]byte) bool { return !lose.Load() }) })
	}
}

// request notices a commit whose answer is to be lost.
func (p *proxy) request(b []byte, lose *atomic.Bool) bool {
	if bytes.Contains(b, []byte("commit\x00")) && p.loseCommit.Load() {
		lose.Store(true)
		p.lost.Add(1)
	}
	return true
}

func (p *proxy) relay(from, to net.Conn, pass func([]byte) bool) {
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

// cut ends every connection; while down is set there are no new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
