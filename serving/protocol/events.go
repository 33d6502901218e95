package protocol

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

// Limits of an event stream.
const (
	readBuffer    = 32 << 10 // bytes asked for at a time
	MaxEventBytes = 16 << 20 // one event: a chunk with a whole answer in it still passes
)

// ErrEventTooLarge says that one event of the stream is above MaxEventBytes.
var ErrEventTooLarge = errors.New("protocol: an event of the stream is too large")

// Events splits a server-sent event stream into the data of its events. The zero value is ready. One goroutine.
//
//	for {
//		for data := s.Next(); data != nil; data = s.Next() { … }
//		if err := s.Fill(r); err != nil { … }
//	}
type Events struct {
	buf        []byte
	start, end int // unread bytes
	seen       int // of the unread bytes, those known to hold no end of a line
	closed     bool
	begun      bool // past where a byte order mark may stand
}

// Reset forgets the stream and keeps the buffer.
func (s *Events) Reset() {
	if cap(s.buf) > 4*readBuffer {
		s.buf = nil // one huge event must not pin memory in a pool
	}
	s.start, s.end, s.seen, s.closed, s.begun = 0, 0, 0, false, false
}

// Fill reads once from r. At the end of the stream it returns io.EOF, and Next then gives what was left unterminated.
func (s *Events) Fill(r io.Reader) error {
	if s.start == s.end {
		s.start, s.end = 0, 0
	}
	if s.buf == nil {
		s.buf = make([]byte, readBuffer)
	}
	if s.start > 0 && len(s.buf)-s.end < readBuffer/2 {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
	}
	if len(s.buf)-s.end < readBuffer/4 {
		if s.end-s.start > MaxEventBytes {
			return ErrEventTooLarge
		}
		grown := make([]byte, 2*len(s.buf))
		s.end = copy(grown, s.buf[s.start:s.end])
		s.buf, s.start = grown, 0
	}
	n, err := r.Read(s.buf[s.end:])
	s.end += n
	if err == io.EOF {
		s.closed = true
	}
	if n > 0 && err != nil && err != io.EOF {
		return nil // use what came; the error comes again
	}
	return err
}

// Next gives the data of the next complete event, or nil when more bytes are needed. The slice is valid until the next
// Fill. Comments and events without data are skipped.
func (s *Events) Next() []byte {
	if !s.begun && !s.begin() {
		return nil
	}
	for s.start < s.end {
		text := s.buf[s.start:s.end]
		at, width := len(text), 0
		if n := bytes.IndexByte(text[s.seen:], '\n'); n < 0 {
			s.seen = len(text)
		} else {
			s.seen += n
			at, width = eventEnd(text, s.seen)
		}
		if width == 0 && !s.closed {
			return nil
		}
		s.start, s.seen = s.start+at+width, 0
		if data := eventData(text[:at]); data != nil {
			return data
		}
	}
	return nil
}

// begin passes a byte order mark. False: more bytes are needed.
func (s *Events) begin() bool {
	text := s.buf[s.start:s.end]
	if len(text) < len(byteOrderMark) && !s.closed && strings.HasPrefix(byteOrderMark, string(text)) {
		return false
	}
	s.begun = true
	if bytes.HasPrefix(text, []byte(byteOrderMark)) {
		s.start += len(byteOrderMark)
	}
	return true
}

const byteOrderMark = "\xef\xbb\xbf"

var dataField = []byte("data:")

func trimData(v []byte) []byte {
	if len(v) > 0 && v[len(v)-1] == '\r' {
		v = v[:len(v)-1]
	}
	if len(v) > 0 && v[0] == ' ' {
		v = v[1:]
	}
	return v
}

// eventEnd finds where the first event of text ends, whose first line ends at newline: the event's length and the width
// of what separates it from the next, which is 0 while the end has not come.
func eventEnd(text []byte, newline int) (at, width int) {
	if newline == 0 || newline == 1 && text[0] == '\r' {
		return 0, newline + 1 // an empty line with nothing before it
	}
	for i := newline; ; i++ {
		switch rest := text[i+1:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i, 2
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i, 3
		}
		n := bytes.IndexByte(text[i+1:], '\n')
		if n < 0 {
			return len(text), 0
		}
		i += n
	}
}

// eventData joins the data lines of one event; nil when it has none. Engines send one line.
func eventData(event []byte) (data []byte) {
	for found := false; len(event) > 0; {
		line, rest := event, []byte(nil)
		if n := bytes.IndexByte(event, '\n'); n >= 0 {
			line, rest = event[:n], event[n+1:]
		}
		event = rest
		if !bytes.HasPrefix(line, dataField) {
			continue
		}
		v := trimData(line[len(dataField):])
		if !found {
			found, data = true, v[:len(v):len(v)] // a further line makes a copy
			continue
		}
		data = append(append(data, '\n'), v...)
	}
	return data
}
