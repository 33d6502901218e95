package batch

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// errLongLine says that a line is above MaxLineBytes. Nothing behind it is read.
var errLongLine = errors.New("batch: a line is too long")

// lineReader gives a file's lines with where they are. Lines end with LF or CRLF, the last one may end with the file. A
// byte order mark before the first is passed over, and so are blank lines.
type lineReader struct {
	r    *bufio.Reader
	long []byte // a line above the reader's buffer, so far
	pos  int64  // of the next byte to be read
	n    int32  // lines so far, blank ones too
}

// line is one line without its end.
type line struct {
	n     int32 // from 1
	start int64
	text  []byte // valid until the next one is read
}

const lineBuffer = 64 << 10

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, lineBuffer)}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// next gives the next line that is not blank, or io.EOF.
func (l *lineReader) next() (line, error) {
	for {
		start := l.pos
		text, err := l.read()
		if len(text) == 0 && err != nil {
			return line{n: l.n + 1}, err
		}
		l.n++
		if err != nil && !errors.Is(err, io.EOF) {
			return line{n: l.n}, err
		}
		if l.n == 1 && bytes.HasPrefix(text, byteOrderMark) {
			text = text[len(byteOrderMark):]
			start += int64(len(byteOrderMark))
		}
		text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if len(text) > MaxLineBytes {
			return line{n: l.n}, errLongLine
		}
		return line{n: l.n, start: start, text: text}, nil
	}
}

// read reads to the end of a line, or of the file.
func (l *lineReader) read() ([]byte, error) {
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.pos += int64(len(part))
		if !errors.Is(err, bufio.ErrBufferFull) && len(l.long) == 0 {
			return part, err
		}
		l.long = append(l.long, part...)
		if len(l.long) > MaxLineBytes+len("\r\n")+len(byteOrderMark) {
			return l.long, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l.long, err
		}
	}
}
