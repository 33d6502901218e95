package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// client is one kept HTTP/1.1 connection. It reads an answer's framing and throws its body away.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(ctx context.Context, address string) (*client, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, r: bufio.NewReaderSize(conn, 32<<10)}, nil
}

func (c *client) close() {
	if c != nil {
		_ = c.conn.Close()
	}
}

// exchange sends one request and reads its whole answer; first is when its first body byte arrived.
func (c *client) exchange(request []byte) (first time.Time, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return first, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return first, err
	}
	length, chunked, err := c.head()
	if err != nil {
		return first, err
	}
	if _, err := c.r.Peek(1); err != nil {
		return first, err
	}
	first = time.Now()
	if !chunked {
		_, err = c.r.Discard(length)
		return first, err
	}
	for {
		size, err := c.chunkSize()
		if err != nil {
			return first, err
		}
		if _, err := c.r.Discard(size + 2); err != nil {
			return first, err
		}
		if size == 0 {
			return first, nil
		}
	}
}

// head reads status line and headers. Anything but 200 is an error, with the start of the body for the reader.
func (c *client) head() (length int, chunked bool, err error) {
	line, err := c.line()
	if err != nil {
		return 0, false, err
	}
	if len(line) < 12 || string(line[9:12]) != "200" {
		peek, _ := c.r.Peek(min(c.r.Buffered(), 300))
		return 0, false, fmt.Errorf("%w: %s %s", errStatus, line, bytes.ReplaceAll(peek, []byte("\r\n"), []byte(" ")))
	}
	length = -1
	for {
		if line, err = c.line(); err != nil {
			return 0, false, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, false, err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			chunked = bytes.EqualFold(value, []byte("chunked"))
		}
	}
	if length < 0 && !chunked {
		return 0, false, errors.New("answer has no length")
	}
	return length, chunked, nil
}

func (c *client) chunkSize() (int, error) {
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	size, err := strconv.ParseUint(string(line), 16, 31)
	return int(size), err
}

func (c *client) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return bytes.TrimRight(line, "\r\n"), err
}
