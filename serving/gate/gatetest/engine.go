package gatetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Engine is a scripted engine on a bare listener: what a script writes is what goes over the wire.
type Engine struct {
	URL string

	script   atomic.Pointer[Script]
	requests atomic.Int64

	mu     sync.Mutex
	conns  map[net.Conn]bool
	bodies []string
	heads  []http.Header
}

// Script answers one request; n counts them from 1. False closes the connection.
type Script func(c net.Conn, n int) (keep bool)

// NewEngine starts one; it ends with the test.
func NewEngine(t testing.TB, s Script) *Engine {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{URL: "http://" + ln.Addr().String(), conns: map[net.Conn]bool{}}
	e.Play(s)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns[c] = true
			e.mu.Unlock()
			tasks.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		e.mu.Lock()
		for c := range e.conns {
			c.Close()
		}
		e.mu.Unlock()
		tasks.Wait()
	})
	return e
}

// Play changes the script for requests that follow.
func (e *Engine) Play(s Script) { e.script.Store(&s) }

// Requests is how many came.
func (e *Engine) Requests() int { return int(e.requests.Load()) }

// Last gives the latest request's header and body.
func (e *Engine) Last() (http.Header, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.bodies) == 0 {
		return nil, ""
	}
	return e.heads[len(e.heads)-1], e.bodies[len(e.bodies)-1]
}

func (e *Engine) serve(c net.Conn) {
	defer func() {
		c.Close()
		e.mu.Lock()
		delete(e.conns, c)
		e.mu.Unlock()
	}()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		n := int(e.requests.Add(1))
		e.mu.Lock()
		e.bodies, e.heads = append(e.bodies, string(body)), append(e.heads, req.Header)
		e.mu.Unlock()
		if !(*e.script.Load())(c, n) {
			return
		}
	}
}

// StreamHead begins a chunked event stream.
const StreamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

// Chunk frames bytes for a chunked body.
func Chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// Send writes to the gate; a gate that has gone is no error of the script.
func Send(c net.Conn, parts ...string) { _, _ = io.WriteString(c, strings.Join(parts, "")) }

// more is more than the two ends of a connection hold of what nobody has read, in bytes.
const more = 16 << 20

// SendTaken sends, and comes back when the gate has read it: comments follow, more of them than a connection can hold.
func SendTaken(c net.Conn, parts ...string) {
	Send(c, parts...)
	comments := Chunk(strings.Repeat(":\n\n", 20_000))
	for sent := 0; sent < more; sent += len(comments) {
		Send(c, comments)
	}
}

// Stream answers with a whole event stream in one write.
func Stream(body string) Script {
	return func(c net.Conn, _ int) bool {
		Send(c, StreamHead, Chunk(body), "0\r\n\r\n")
		return true
	}
}

// Cut answers with the first n bytes of an event stream and closes the connection.
func Cut(body string, n int) Script {
	return func(c net.Conn, _ int) bool {
		if n == 0 {
			Send(c, StreamHead)
		} else {
			Send(c, StreamHead, Chunk(body[:n]))
		}
		return false
	}
}

// Refuse answers with a status and a JSON body.
func Refuse(status int, body string, headers ...string) Script {
	return func(c net.Conn, _ int) bool {
		Send(c, fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", status, len(body), strings.Join(headers, ""), body))
		return true
	}
}

// Gone waits until the gate closes the connection.
func Gone(c net.Conn) {
	_, _ = c.Read(make([]byte, 1))
}
