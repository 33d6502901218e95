package assembly

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const patience = 20 * time.Second // for what must happen, however busy the machine is

// edge is the public listener in front of h, as inference.
func edge(t *testing.T, h http.HandlerFunc) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(context.Background(), "public", l, split(h, nil, nil), func(err error) { t.Error(err) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.drain(ctx)
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A client that sends its whole body before it reads must still read why it was refused.
func TestARefusalReachesAClientThatSendsEverythingFirst(t *testing.T) {
	const size = 48 << 20
	for name, head := range map[string]string{
		"told by its length": fmt.Sprintf("Content-Length: %d\r\n\r\n", size),
		"in chunks":          fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", size),
	} {
		t.Run(name, func(t *testing.T) {
			conn := edge(t, func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			})
			fmt.Fprintf(conn, "POST /v1/x HTTP/1.1\r\nHost: x\r\n%s", head)
			piece := make([]byte, 1<<20)
			for sent := 0; sent < size; sent += len(piece) {
				if _, err := conn.Write(piece); err != nil {
					t.Fatalf("broken after %d MiB: %v", sent>>20, err)
				}
			}
			if strings.Contains(head, "chunked") {
				fmt.Fprint(conn, "\r\n0\r\n\r\n")
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "too large\n" || err != nil {
				t.Errorf("%d %q %v", resp.StatusCode, text, err)
			}
		})
	}
}

// A client that asks first whether it may send is not waited for once it is told that it may not.
func TestAClientThatWaitsToSendIsNotWaitedFor(t *testing.T) {
	r, err := http.NewRequest(http.MethodPost, "/v1/x", strings.NewReader(strings.Repeat("x", smallRest+1)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	b := limitBody(noDeadlines{httptest.NewRecorder()}, r)
	b.ReadCloser = nil // reading it would panic
	b.linger()
}

// noDeadlines takes deadlines as a connection does, and lets them pass.
type noDeadlines struct{ *httptest.ResponseRecorder }

func (noDeadlines) SetReadDeadline(time.Time) error { return nil }

// A request with two lengths may be one that somebody in front framed otherwise: nothing behind it is served.
func TestNothingBehindARequestOfTwoLengthsIsServed(t *testing.T) {
	for name, head := range map[string]string{
		"in chunks":                "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"in chunks, by the length": "POST /v1/x HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var served atomic.Int32
			conn := edge(t, func(_ http.ResponseWriter, r *http.Request) {
				served.Add(1)
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Error(err)
				}
			})
			fmt.Fprint(conn, head+"GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
			text, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), "HTTP/1."); n != 1 || served.Load() != 1 {
				t.Errorf("%d answers, %d requests served:\n%s", n, served.Load(), text)
			}
		})
	}
}

// call asks the control API.
func call(t *testing.T, url, method, bearer, body string, into any) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%v: %d %s", err, resp.StatusCode, text)
	}
	return resp.StatusCode
}
