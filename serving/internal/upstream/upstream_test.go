package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/clock"
)

// server answers each request on a connection with what script gives, and closes it after "".
func server(t testing.TB, script func(connection, request int, r *http.Request) string) *Pool {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go converse(c, n, script)
		}
	}()
	p := NewPool(func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
	}, clock.System, PlainIdle)
	t.Cleanup(func() { p.Close(); ln.Close(); <-ended })
	return p
}

func converse(c net.Conn, n int, script func(int, int, *http.Request) string) {
	defer c.Close()
	in := bufio.NewReader(c)
	for i := 0; ; i++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := script(n, i, r)
		if _, err := io.WriteString(c, strings.TrimSuffix(answer, closeMark)); err != nil || answer == "" || strings.HasSuffix(answer, closeMark) {
			return
		}
	}
}

// closeMark at an answer's end closes the connection.
const closeMark = "\x00close"

func ask(body string) Request {
	return Request{Head: []byte("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n"), Extra: []byte("X-Extra: 1\r\n"), Body: []byte(body),
		ConnectIn: time.Second, HeadBy: time.Now().Add(5 * time.Second)}
}

func post(t testing.TB, p *Pool, body string) (*Exchange, string, error) {
	t.Helper()
	x, err := p.Post(t.Context(), ask(body))
	if err != nil {
		return nil, "", err
	}
	defer x.Close()
	text, err := io.ReadAll(x)
	return x, string(text), err
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		status       int
		body         string
		again        bool // the connection is used again
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", true},
		{"empty", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", true},
		{"no body", "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", 500, "", true},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;ext=1\r\n \r\nA\r\n0123456789\r\n0\r\n\r\n", 200, "hello 0123456789", true},
		{"trailers", "HTTP/1.1 200 OK\r\nTRANSFER-encoding: Chunked\r\n\r\n2\r\nab\r\n00\r\nX-T: 1\r\n\r\n", 200, "ab", true},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nall of it" + closeMark, 200, "all of it", false},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab" + closeMark, 200, "ab", false},
		{"close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab" + closeMark, 200, "ab", false},
		{"continue first", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", 200, "ab", true},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 2\n\nab", 200, "ab", true},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nab", 200, "ab", true},
		{"more than was said", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", 200, "ab", false},
		{"both framings", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 200, "ab", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			connections := 0
			p := server(t, func(c, _ int, r *http.Request) string {
				connections = c + 1
				if body, _ := io.ReadAll(r.Body); string(body) != "question" || r.Header.Get("X-Extra") != "1" || r.URL.Path != "/v1/chat/completions" {
					return "HTTP/1.1 400 wrong request\r\nContent-Length: 0\r\n\r\n"
				}
				return tt.answer
			})
			for range 2 {
				x, body, err := post(t, p, "question")
				if err != nil || x.Status != tt.status || body != tt.body {
					t.Fatalf("%v %+v %q", err, x, body)
				}
			}
			if (connections == 1) != tt.again {
				t.Errorf("%d connections", connections)
			}
		})
	}
}

func TestBrokenAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":               "",
		"no HTTP":               "SSH-2.0-OpenSSH\r\n\r\n" + closeMark,
		"HTTP/2":                "HTTP/2 200 OK\r\n\r\n" + closeMark,
		"no status":             "HTTP/1.1 abc\r\n\r\n" + closeMark,
		"half a head":           "HTTP/1.1 200 OK\r\nContent-Le" + closeMark,
		"no colon":              "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n" + closeMark,
		"a huge head":           "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 40) + "\r\n" + closeMark,
		"a huge line":           "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 100_000) + "\r\n\r\n" + closeMark,
		"a negative length":     "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + closeMark,
		"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab" + closeMark,
		"another encoding":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n" + closeMark,
		"another protocol":      "HTTP/1.1 101 Switching\r\n\r\n" + closeMark,
		"less than was said":    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab" + closeMark,
		"half a chunk":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab" + closeMark,
		"no last chunk":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n" + closeMark,
		"no end of the trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n" + closeMark,
		"no size":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nab\r\n0\r\n\r\n" + closeMark,
		"a size that is none":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nab\r\n0\r\n\r\n" + closeMark,
		"a negative size":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n" + closeMark,
		"a size beyond all":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nab\r\n0\r\n\r\n" + closeMark,
		"a chunk that runs on":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n" + closeMark,
	} {
		t.Run(name, func(t *testing.T) {
			p := server(t, func(int, int, *http.Request) string { return answer })
			if x, body, err := post(t, p, "q"); err == nil {
				t.Fatalf("%+v %q", x, body)
			}
		})
	}
}

// However an answer is cut into packets, its body is the same, and nothing that has come waits for what has not.
func TestBodiesDoNotDependOnPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want, wire strings.Builder
		wire.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range rapid.IntRange(0, 8).Draw(t, "chunks") {
			s := rapid.StringN(1, 40, 60).Draw(t, "chunk")
			want.WriteString(s)
			fmt.Fprintf(&wire, "%x\r\n%s\r\n", len(s), s)
		}
		wire.WriteString("0\r\n\r\n")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 50), 1, 20).Draw(t, "sizes")
		near, far := net.Pipe()
		p := NewPool(func(context.Context) (net.Conn, error) { return near, nil }, clock.System, PlainIdle)
		defer p.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err := http.ReadRequest(bufio.NewReader(far))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			text := wire.String()
			for i := 0; text != ""; i++ {
				n := min(sizes[i%len(sizes)], len(text))
				if _, err := io.WriteString(far, text[:n]); err != nil {
					return
				}
				text = text[n:]
			}
		}()
		x, err := p.Post(context.Background(), ask("q"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(x)
		if err != nil || string(got) != want.String() {
			t.Fatalf("%q, %v; want %q", got, err, want.String())
		}
		<-done
		if len(p.idle) != 1 {
			t.Fatal("the connection was not kept")
		}
	})
}

func TestNothingWaitsForWhatHasNotCome(t *testing.T) {
	near, far := net.Pipe()
	p := NewPool(func(context.Context) (net.Conn, error) { return near, nil }, clock.System, PlainIdle)
	defer p.Close()
	next := make(chan struct{}, 16)
	go func() {
		r, _ := http.ReadRequest(bufio.NewReader(far))
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntw")
		<-next
		_, _ = io.WriteString(far, "o\r")
		<-next
		_, _ = io.WriteString(far, "\n5\r\nthr")
		far.Close()
	}()
	x, err := p.Post(t.Context(), ask("q"))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	buf := make([]byte, 100)
	var got []string
	for {
		n, err := x.Read(buf)
		if got = append(got, string(buf[:n])); err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			break
		}
		next <- struct{}{} // what was there has been read: send more
	}
	if text := strings.Join(got, ""); text != "onetwothr" || got[0] != "onetw" {
		t.Errorf("%q", got)
	}
}

func TestTheContextEndsAnExchange(t *testing.T) {
	left := make(chan struct{})
	p := server(t, func(int, int, *http.Request) string { <-left; return "" })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := p.Post(ctx, ask("q")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(left)
}

func TestDeadlines(t *testing.T) {
	stop := make(chan struct{})
	p := server(t, func(int, int, *http.Request) string { <-stop; return "" })
	r := ask("q")
	r.HeadBy = time.Now().Add(30 * time.Millisecond)
	if _, err := p.Post(t.Context(), r); !IsTimeout(err) {
		t.Error(err)
	}
	close(stop)
	none := NewPool(func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, clock.System, PlainIdle)
	r.ConnectIn = 10 * time.Millisecond
	var connect *ConnectError
	if _, err := none.Post(t.Context(), r); !errors.As(err, &connect) {
		t.Error(err)
	}
}

// A connection that was closed while it lay idle is stale; one that is closed after the first byte is broken.
// Whoever has read an answer to its end has no say over the connection any more, which may carry the next request.
func TestAnExchangeThatHasEndedMovesNoDeadline(t *testing.T) {
	ours, engine := net.Pipe()
	p := NewPool(func(context.Context) (net.Conn, error) { return ours, nil }, clock.System, PlainIdle)
	ended := make(chan struct{})
	go func() { // ends with the pipe
		defer close(ended)
		in := bufio.NewReader(engine)
		for _, answer := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"} {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(engine, answer)
		}
	}()
	t.Cleanup(func() { p.Close(); engine.Close(); <-ended })
	first, body, err := post(t, p, "1")
	if err != nil || body != "ok" {
		t.Fatalf("%q, %v", body, err)
	}
	second, err := p.Post(t.Context(), ask("2"))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	<-ended
	first.Deadline(time.Now().Add(-time.Hour), 0)
	rest := make(chan struct{})
	go func() { defer close(rest); _, _ = io.WriteString(engine, "ok") }() // ends with the pipe at the latest
	if text, err := io.ReadAll(second); err != nil || string(text) != "ok" {
		t.Errorf("%q, %v", text, err)
	}
	engine.Close()
	<-rest
}

func TestStale(t *testing.T) {
	p := server(t, func(_, request int, _ *http.Request) string {
		if request == 0 {
			return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"
		}
		return ""
	})
	if _, _, err := post(t, p, "q"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := post(t, p, "q"); !errors.Is(err, ErrStale) {
		t.Fatal(err)
	}
	if _, _, err := post(t, p, "q"); err != nil {
		t.Fatal(err)
	}
}

// When an engine restarts, all its connections are closed: one stale one is enough to know.
func TestAfterARestart(t *testing.T) {
	const together = 20
	var arrived atomic.Int64
	all := make(chan struct{})
	p := server(t, func(_, request int, _ *http.Request) string {
		if request == 0 {
			if arrived.Add(1) == together {
				close(all)
			}
			<-all
			return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		}
		return ""
	})
	var wg sync.WaitGroup
	for range together {
		wg.Go(func() {
			if _, _, err := post(t, p, "q"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(p.idle) != together {
		t.Fatalf("%d idle connections", len(p.idle))
	}
	if _, _, err := post(t, p, "q"); !errors.Is(err, ErrStale) {
		t.Fatal(err)
	}
	if _, _, err := post(t, p, "q"); err != nil {
		t.Fatal(err)
	}
}

// Idle connections are not kept for long.
func TestIdleConnections(t *testing.T) {
	c := clock.NewManual(time.Now())
	p := server(t, func(int, int, *http.Request) string { return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" })
	p.clock = c
	if _, _, err := post(t, p, "q"); err != nil || len(p.idle) != 1 {
		t.Fatal(err, len(p.idle))
	}
	first := p.idle[0]
	c.Advance(PlainIdle)
	if _, _, err := post(t, p, "q"); err != nil || len(p.idle) != 1 || p.idle[0] == first {
		t.Fatal("an old connection was used")
	}
	c.Advance(PlainIdle)
	p.expire()
	if len(p.idle) != 0 {
		t.Fatal("an old connection is kept")
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 503 X\r\nRetry-After: 5\r\n\r\nrest"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		p := NewPool(func(context.Context) (net.Conn, error) { return &canned{in: bytes.NewReader(answer)}, nil }, clock.System, PlainIdle)
		defer p.Close()
		x, err := p.Post(context.Background(), ask("q"))
		if err != nil {
			return
		}
		defer x.Close()
		if body, _ := io.ReadAll(x); len(body) > len(answer) {
			t.Fatalf("%q from %q", body, answer)
		}
	})
}

// canned is a connection with an answer on it.
type canned struct {
	net.Conn
	in *bytes.Reader
}

func (c *canned) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *canned) Write(p []byte) (int, error)      { return len(p), nil }
func (c *canned) Close() error                     { return nil }
func (c *canned) SetReadDeadline(time.Time) error  { return nil }
func (c *canned) SetWriteDeadline(time.Time) error { return nil }
