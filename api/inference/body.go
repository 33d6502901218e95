package inference

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"millrace/internal/fault"
	"millrace/serving/protocol"
)

// bodyTime is how long a client may take to send its body. A small one comes with its head: it needs no deadline of its own.
const (
	bodyTime  = 2 * time.Minute
	smallBody = 16 << 10 // bytes
)

// wantJSON checks what the body says of itself. A request that says nothing is taken at its word.
func wantJSON(h http.Header) error {
	if ct := h.Get("Content-Type"); ct != "" && ct != "application/json" {
		if kind, _, err := mime.ParseMediaType(ct); err != nil || kind != "application/json" {
			return fault.New(fault.Unsupported, "Send the body as JSON, with the header Content-Type: application/json.")
		}
	}
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return fault.New(fault.Unsupported, "Send the body without a content encoding.")
	}
	return nil
}

func tooLarge() error {
	return fault.New(fault.TooLarge, "The request body is larger than %d MiB.", protocol.MaxBodyBytes>>20)
}

// readBody reads the whole body.
func (d *Door) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > protocol.MaxBodyBytes {
		return nil, tooLarge()
	}
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(d.Clock.Now().Add(bodyTime)) // a writer without deadlines does without
		defer control.SetReadDeadline(time.Time{})
	}
	body, err := readAll(r)
	if err != nil {
		bodies.give(body)
		var f *fault.Fault
		if errors.As(err, &f) {
			return nil, f
		}
		return nil, fault.New(fault.Invalid, "The request body could not be read whole.").WithCause(err)
	}
	return body, nil
}

func readAll(r *http.Request) ([]byte, error) {
	if n := r.ContentLength; n >= 0 {
		body := bodies.take(int(n))
		_, err := io.ReadFull(r.Body, body)
		return body, err
	}
	body := bodies.take(0)
	limited := io.LimitReader(r.Body, protocol.MaxBodyBytes+1)
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := limited.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > protocol.MaxBodyBytes:
			return body, tooLarge()
		case err == io.EOF:
			return body, nil
		case err != nil:
			return body, err
		}
	}
}

// bodies keeps buffers of ordinary requests.
var bodies buffers

// Give gives back a body that nothing refers to any more.
func Give(body []byte) { bodies.give(body) }

type buffers struct{ pool sync.Pool }

// maxKept bounds a kept buffer, in bytes; larger ones are rare and left to the collector.
const maxKept = 256 << 10

func (b *buffers) take(n int) []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok && cap(*kept) >= n {
		return (*kept)[:n]
	}
	return make([]byte, n, max(n, 8<<10))
}

func (b *buffers) give(body []byte) {
	if body != nil && cap(body) <= maxKept {
		b.pool.Put(&body)
	}
}
