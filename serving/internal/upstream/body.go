package upstream

import (
	"bytes"
	"errors"
	"io"
)

var errFraming = errors.New("upstream: the answer's chunks are framed wrongly")

// Read reads the answer's body: what is there already, or, when nothing is, what comes next. io.EOF comes after the
// body's proper end only; a connection that ends before is io.ErrUnexpectedEOF.
func (x *Exchange) Read(p []byte) (n int, err error) {
	for n < len(p) && x.err == nil && !x.done {
		if n > 0 && x.conn.in.Buffered() == 0 {
			break
		}
		if x.chunked && x.left == 0 {
			if n > 0 && !x.chunkBuffered() {
				break
			}
			if x.err = x.nextChunk(); x.err != nil || x.done {
				break
			}
		}
		n += x.readSome(p[n:])
	}
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case x.err != nil:
		return 0, x.err
	}
	return 0, io.EOF
}

// readSome reads within the body, or within the current chunk.
func (x *Exchange) readSome(p []byte) int {
	if x.left >= 0 && int64(len(p)) > x.left {
		p = p[:x.left]
	}
	n, err := x.conn.in.Read(p)
	if x.left >= 0 {
		x.left -= int64(n)
	}
	switch {
	case err == io.EOF && x.left < 0:
		x.finish()
	case err == io.EOF:
		x.err = io.ErrUnexpectedEOF
	case err != nil:
		x.err = err
	case x.left == 0 && x.chunked:
		x.after = true
	case x.left == 0:
		x.finish()
	}
	return n
}

// chunkBuffered reports whether the next chunk's size has come whole and there is data in it: then nextChunk cannot block.
func (x *Exchange) chunkBuffered() bool {
	text, _ := x.conn.in.Peek(x.conn.in.Buffered())
	if x.after {
		n := bytes.IndexByte(text, '\n')
		if n < 0 {
			return false
		}
		text = text[n+1:]
	}
	return bytes.IndexByte(text, '\n') > 0 && text[0] != '0'
}

// nextChunk reads a chunk's size, and the end of the body after the last.
func (x *Exchange) nextChunk() error {
	if x.after {
		line, err := x.line()
		if err != nil {
			return err
		}
		if len(line) > 0 {
			return errFraming
		}
		x.after = false
	}
	line, err := x.line()
	if err != nil {
		return err
	}
	if x.left, err = chunkSize(line); err != nil || x.left > 0 {
		return err
	}
	for size := 0; ; { // trailers
		line, err := x.line()
		if err != nil {
			return err
		}
		if size += len(line); size > maxHead {
			return errFraming
		}
		if len(line) == 0 {
			x.finish()
			return nil
		}
	}
}

// maxSizeDigits keeps a chunk's size far from overflow.
const maxSizeDigits = 12

func chunkSize(line []byte) (size int64, err error) {
	digits := 0
	for _, c := range line {
		var v byte
		switch {
		case '0' <= c && c <= '9':
			v = c - '0'
		case 'a' <= c && c <= 'f':
			v = c - 'a' + 10
		case 'A' <= c && c <= 'F':
			v = c - 'A' + 10
		case (c == ';' || c == ' ' || c == '\t') && digits > 0:
			return size, nil
		default:
			return 0, errFraming
		}
		if digits++; digits > maxSizeDigits {
			return 0, errFraming
		}
		size = size<<4 | int64(v)
	}
	if digits == 0 {
		return 0, errFraming
	}
	return size, nil
}

// Buffered reports whether something has come that was not read yet.
func (x *Exchange) Buffered() bool { return !x.done && x.conn.in.Buffered() > 0 }

// Wait waits until there is something to read and takes nothing of it: after a timeout it can be waited for again. Any
// other error is left for Read to tell.
func (x *Exchange) Wait() error {
	if x.done || x.err != nil {
		return nil
	}
	n := 1
	if x.after {
		n += len("\r\n") // what ends the chunk before says nothing
	}
	if x.conn.in.Buffered() >= n {
		return nil
	}
	if _, err := x.conn.in.Peek(n); IsTimeout(err) {
		return err
	}
	return nil
}

// finish ends the exchange after its answer's proper end: the connection may serve another.
func (x *Exchange) finish() {
	x.done = true
	c := x.conn
	watched := x.stop()
	clean := c.in.Buffered() == 0
	c.release()
	if watched && clean && x.keep {
		c.pool.put(c)
		return
	}
	_ = c.net.Close()
}

// Close ends the exchange. Before the answer's end it closes the connection.
func (x *Exchange) Close() {
	if x.done {
		return
	}
	x.done = true
	x.stop()
	x.conn.release()
	_ = x.conn.net.Close()
}

func (c *conn) release() {
	if c.in != nil {
		c.in.Reset(nil)
		readers.Put(c.in)
		c.in = nil
	}
}
