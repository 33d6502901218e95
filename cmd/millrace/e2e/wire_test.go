package e2e

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// pieceMarks show where a piece of an answer is, in each API; an empty one is none.
var pieceMarks = []string{`"delta":{"content":"`, "event: response.output_text.delta\n", "event: response.reasoning_summary_text.delta\n",
	`"delta":{"type":"text_delta"`, `"delta":{"type":"thinking_delta"`}

const emptyPiece = `"delta":{"content":""`

// wire stands between a client and Millrace and counts what Millrace writes, whether the client still reads it or not.
type wire struct {
	url    string
	pieces atomic.Int64
	work   sync.WaitGroup
}

// listenIn listens on loopback and passes everything on.
func listenIn(t *testing.T, to string) *wire {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{url: "http://" + l.Addr().String()}
	t.Cleanup(func() { l.Close(); w.work.Wait() })
	w.work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			w.work.Go(func() { w.pass(t, client.(*net.TCPConn), target.Host) })
		}
	})
	return w
}

// pass joins two connections. When the client goes, Millrace is told by the end of the request's side alone, and what it
// has written is counted to its end.
func (w *wire) pass(t *testing.T, client *net.TCPConn, host string) {
	defer client.Close()
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Error(err)
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	w.work.Go(func() {
		_, _ = io.Copy(server, client) // a client that resets has gone as well
		_ = server.CloseWrite()
	})
	var seen []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		seen = append(seen, buf[:n]...)
		if n > 0 {
			_, _ = client.Write(buf[:n]) // it may have gone
		}
		if err != nil {
			break
		}
	}
	for _, mark := range pieceMarks {
		w.pieces.Add(int64(bytes.Count(seen, []byte(mark))))
	}
	w.pieces.Add(-int64(bytes.Count(seen, []byte(emptyPiece))))
}

// drained waits until Millrace has ended every answer.
func (w *wire) drained(t *testing.T) {
	t.Helper()
	eventually(t, "the answer is ended", func() bool { return w.pieces.Load() > 0 })
}
