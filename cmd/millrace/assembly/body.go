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

// limitBody gives the request's body its time. The deadline goes when the body ends: what follows may take as long as an
// answer takes.
func limitBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	wait := unknownBody
	if r.ContentLength >= 0 {
		wait = bodyTime + time.Duration(r.ContentLength/bodyRate)*time.Second
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(wait)) == nil { // always works on a real connection
		r.Body = &timedBody{ReadCloser: r.Body, rc: rc}
	}
}

type timedBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{}) // else the end of the time would look like the client's leaving
	}
	return n, err
}
