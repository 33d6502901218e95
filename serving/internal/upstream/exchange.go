package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// Sizes of an exchange, in bytes.
const (
	readBuffer = 16 << 10
	maxHead    = 16 << 10  // a status line and headers
	joinBelow  = 128 << 10 // request bodies up to this size leave in one write with their head
	smallBody  = 16 << 10  // request bodies up to this size always fit a socket's buffer: their write needs no deadline
)

// writeTime is how long sending a large request may take.
const writeTime = 2 * time.Minute

// EventStream is the content type that engines usually give.
const EventStream = "text/event-stream; charset=utf-8"

// Request is one POST.
type Request struct {
	Head  []byte // the request line and headers as they go out, each line ended; without Content-Length and the empty line
	Extra []byte // further header lines of this request, each ended
	Body  []byte

	ConnectIn time.Duration // how long opening a connection may take
	HeadBy    time.Time     // when the answer's head must have come
}

// Exchange is one request and its answer.
type Exchange struct {
	Status      int
	ContentType string
	RetryAfter  string
	Simulated   bool // the engine says that it is simulated

	conn    *conn
	stop    func() bool // ends the watch over the context
	left    int64       // bytes left of the body or of the current chunk; -1 = until the connection ends
	chunked bool
	after   bool // a chunk's data has been read, its line end has not
	keep    bool // the connection outlives the answer
	done    bool
	err     error
}

// conn is one connection. The buffer is attached only while an exchange runs.
type conn struct {
	net      net.Conn
	pool     *Pool
	in       *bufio.Reader
	since    time.Time // idle since
	reused   bool
	deadline time.Time // as set on net for reads
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}

var writes = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// Post sends a request and reads the head of its answer. The context's end closes the connection, until the exchange has
// ended. ErrStale asks for another try.
func (p *Pool) Post(ctx context.Context, r Request) (*Exchange, error) {
	c, err := p.get(ctx, r.ConnectIn)
	if err != nil {
		return nil, err
	}
	x := &Exchange{conn: c}
	x.stop = context.AfterFunc(ctx, func() { _ = c.net.Close() })
	if err := c.send(r); err != nil {
		return nil, x.fail(ctx, err, c.reused)
	}
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c.net)
	c.setDeadline(r.HeadBy, 0)
	if _, err := c.in.Peek(1); err != nil {
		return nil, x.fail(ctx, err, c.reused && !IsTimeout(err))
	}
	if err := x.readHead(); err != nil {
		return nil, x.fail(ctx, err, false)
	}
	return x, nil
}

// fail closes the exchange and says why it failed: the context's error when that ended it.
func (x *Exchange) fail(ctx context.Context, err error, stale bool) error {
	x.Close()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case stale:
		x.conn.pool.distrust()
		return ErrStale
	}
	return err
}

// IsTimeout reports whether a read failed because its deadline had passed.
func IsTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func (c *conn) send(r Request) error {
	if len(r.Body) > smallBody {
		if err := c.net.SetWriteDeadline(c.pool.clock.Now().Add(writeTime)); err != nil {
			return err
		}
		defer c.net.SetWriteDeadline(time.Time{})
	}
	buf := writes.Get().(*[]byte)
	defer writes.Put(buf)
	out := append(append((*buf)[:0], r.Head...), r.Extra...)
	out = strconv.AppendInt(append(out, "Content-Length: "...), int64(len(r.Body)), 10)
	out = append(out, "\r\n\r\n"...)
	if len(r.Body) > joinBelow {
		if _, err := c.net.Write(out); err != nil {
			return err
		}
		_, err := c.net.Write(r.Body)
		return err
	}
	out = append(out, r.Body...)
	*buf = out
	_, err := c.net.Write(out)
	return err
}

// Deadline bounds the reads that follow. It is not moved when that would make it later by less than slack: setting one
// costs as much as a read. After the answer's end it does nothing: the connection may be another exchange's by then.
func (x *Exchange) Deadline(t time.Time, slack time.Duration) {
	if !x.done {
		x.conn.setDeadline(t, slack)
	}
}

func (c *conn) setDeadline(t time.Time, slack time.Duration) {
	if d := t.Sub(c.deadline); d >= 0 && d < slack {
		return
	}
	c.deadline = t
	_ = c.net.SetReadDeadline(t)
}

// readHead reads status line and headers, passing over informational answers.
func (x *Exchange) readHead() error {
	for {
		line, err := x.line()
		if err != nil {
			return err
		}
		minor, status, err := statusLine(line)
		if err != nil {
			return err
		}
		*x = Exchange{conn: x.conn, stop: x.stop, Status: status, keep: minor == 1, left: -1}
		if err := x.readHeaders(); err != nil {
			return err
		}
		if status >= 200 {
			break
		}
		if status == 101 {
			return errors.New("upstream: the server wants another protocol")
		}
	}
	switch {
	case x.Status == 204 || x.Status == 304:
		x.left, x.chunked = 0, false
	case x.chunked:
		x.keep, x.left = x.keep && x.left < 0, 0 // both framings at once: somebody errs
	case x.left < 0:
		x.keep = false // the body ends with the connection
	}
	if !x.chunked && x.left == 0 {
		x.finish()
	}
	return nil
}

func statusLine(line []byte) (minor, status int, err error) {
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
		return 0, 0, errors.New("upstream: the answer is not HTTP/1")
	}
	status, err = strconv.Atoi(string(line[9:12]))
	if err != nil || status < 100 || len(line) > 12 && line[12] != ' ' {
		return 0, 0, errors.New("upstream: the answer has no status")
	}
	return int(line[7] - '0'), status, nil
}

func (x *Exchange) readHeaders() error {
	for size := 0; ; {
		line, err := x.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if size += len(line); size > maxHead {
			return errors.New("upstream: the answer's head is too large")
		}
		name, value, found := bytes.Cut(line, []byte{':'})
		if !found {
			return errors.New("upstream: a header without a colon")
		}
		if err := x.header(name, bytes.TrimSpace(value)); err != nil {
			return err
		}
	}
}

func (x *Exchange) header(name, value []byte) error {
	switch len(name) {
	case len("Connection"):
		if is(name, "connection") {
			x.keep = x.keep && !is(value, "close")
		}
	case len("Retry-After"):
		if is(name, "retry-after") {
			x.RetryAfter = string(value)
		}
	case len("Content-Type"):
		if is(name, "content-type") {
			if x.ContentType = EventStream; string(value) != EventStream {
				x.ContentType = string(value)
			}
		}
	case len("Content-Length"):
		if is(name, "content-length") {
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || n < 0 || x.left >= 0 && x.left != n {
				return errors.New("upstream: a content length that is none")
			}
			x.left = n
		}
	case len("Transfer-Encoding"):
		if is(name, "transfer-encoding") {
			if !is(value, "chunked") {
				return fmt.Errorf("upstream: unknown transfer encoding %q", value)
			}
			x.chunked = true
		}
	case len("X-Millrace-Simulated"):
		if is(name, "x-millrace-simulated") {
			x.Simulated = is(value, "true")
		}
	}
	return nil
}

// is compares ASCII without case; lower is in lower case.
func is(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// line reads one line without its end. It is valid until the next read.
func (x *Exchange) line() ([]byte, error) {
	line, err := x.conn.in.ReadSlice('\n')
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}
