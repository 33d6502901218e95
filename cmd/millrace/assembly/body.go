package assembly

import (
	"io"
	"net/http"
	"time"
)

// A body must arrive at a rate that any real client keeps; a silent or dripping one would hold its connection for ever.
const (
	bodyTime    = 20 * time.Second // for a small body
	bodyRate    = 64 << 10         // bytes per second, beyond
	unknownBody = 2 * time.Minute  // for a body that does not tell its length
)

// endAfter ends the connection after a request that may have been framed otherwise by whoever forwarded it: one in chunks may
// have told a Content-Length beside it, and one of HTTP/1.0 a Transfer-Encoding. net/http drops either without a word, as
// RFC 9112 (section 6.1) allows, but would go on reading requests, which it forbids: they may be smuggled.
func endAfter(w http.ResponseWriter, r *http.Request) {
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
		w.Header().Set("Connection", "close")
	}
}

// limitBody gives the request's body its time. The deadline goes when the body ends: what follows may take as long as an
// answer takes. The caller lingers on the body that it gives (nil = none) once the request is answered.
func limitBody(w http.ResponseWriter, r *http.Request) *timedBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	wait := bodyWait(r.ContentLength)
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(wait)) != nil { // always works on a real connection
		return nil
	}
	b := &timedBody{ReadCloser: r.Body, rc: rc, left: r.ContentLength, waits: r.Header.Get("Expect") != ""}
	r.Body = b
	return b
}

// bodyWait is a body's time. No length that a client tells gives it more than the longest body that anything here takes.
func bodyWait(length int64) time.Duration {
	if length < 0 {
		return unknownBody
	}
	return bodyTime + time.Duration(min(length, lingerBytes)/bodyRate)*time.Second
}

type timedBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	left  int64 // bytes not read yet; negative when the length was not told
	begun bool  // something was read
	ended bool
	waits bool // the client waits to be told that it may send
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	b.begun = true
	if err != nil {
		b.ended = true
	}
	if err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{}) // else the end of the time would look like the client's leaving
	}
	return n, err
}

// How much of an unread body is taken after the answer, so that a client that sends everything before it reads gets the
// answer and not a broken connection.
const (
	lingerBytes = 256 << 20
	lingerTime  = 30 * time.Second
	lingerPause = 5 * time.Second // the longest silence
	smallRest   = 256 << 10       // bytes that net/http takes by itself
)

// linger sends the answer and takes what the client still sends of a body that nobody read, up to a bound.
func (b *timedBody) linger() {
	if b == nil || b.ended || b.waits && !b.begun || b.left >= 0 && b.left <= smallRest {
		return
	}
	if b.rc.Flush() != nil {
		return
	}
	buf := make([]byte, 32<<10)
	end := time.Now().Add(lingerTime)
	for taken := 0; taken < lingerBytes && !b.ended; {
		_ = b.rc.SetReadDeadline(earlier(end, time.Now().Add(lingerPause)))
		n, _ := b.Read(buf)
		taken += n
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
