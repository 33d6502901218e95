package cork

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// counting counts the writes to its connections.
type counting struct {
	net.Listener
	writes atomic.Int64
}

type counted struct {
	net.Conn
	of *counting
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &counted{c, l}, err
}

func (c *counted) Write(p []byte) (int, error) { c.of.writes.Add(1); return c.Conn.Write(p) }

// Whatever a handler writes between Cork and Uncork leaves in one write, and arrives as it would without.
func TestOneWrite(t *testing.T) {
	for _, size := range []int{1, 3000, 10_000, 60_000, 200_000} {
		text := strings.Repeat("x", size)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := From(r.Context())
			c.Cork()
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
			if err := c.Uncork(); err != nil {
				t.Error(err)
			}
		}))
		l := &counting{Listener: server.Listener}
		server.Listener = Listen(l)
		server.Config.ConnContext = Context
		server.Start()
		answer, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		server.Close()
		if err != nil || string(got) != text {
			t.Fatalf("%d bytes: got %d, %v", size, len(got), err)
		}
		if n := l.writes.Load(); n > 2+int64(size/maxHeld) {
			t.Errorf("%d bytes: %d writes", size, n)
		}
	}
}

func TestErrorsComeWithUncork(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	c := &Conn{Conn: near}
	c.Cork()
	if n, err := c.Write([]byte("x")); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := c.Uncork(); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal("not corked any more, but no error")
	}
}

// A server that knows nothing of corks, and TLS, are left alone.
func TestWithoutCork(t *testing.T) {
	c := From(context.Background())
	c.Cork()
	if c != nil || c.Uncork() != nil {
		t.Fatal(c)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || From(r.Context()) != nil {
			t.Error("a TLS connection was wrapped")
		}
	}))
	server.StartTLS()
	config := server.TLS.Clone()
	server.Close()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := &http.Server{Handler: server.Config.Handler, ConnContext: Context}
	ended := make(chan error, 1)
	go func() { ended <- secure.Serve(Listen(tls.NewListener(raw, config))) }()
	conn, err := tls.Dial("tcp", raw.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test's own server
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}
	conn.Close()
	secure.Close()
	<-ended
}
