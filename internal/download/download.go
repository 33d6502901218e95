// Package download sends an answer that is made while it is sent: exports, which may be of any length. It knows nothing of
// what is in them.
//
// Invariants: what fails before its first byte is an ordinary error; what fails later breaks the connection, so that half a
// file never looks like a whole one; a client that takes nothing for a while is left.
package download

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// patience is how long one write may wait for the client.
const patience = 30 * time.Second

// Answer is what is sent.
type Answer struct {
	Name      string   // of the file; a safe name of our own making
	MediaType string   // its content type
	Trailers  []string // what Write tells behind the last byte, by name
	// Write makes the file. It gives the trailers' values.
	Write func(w io.Writer) (map[string]string, error)
}

// Send answers with a file. An error means that nothing was sent; what breaks off later panics with http.ErrAbortHandler,
// which net/http takes for what it is.
func Send(w http.ResponseWriter, a Answer) error {
	h := w.Header()
	out := &outlet{w: w, rc: http.NewResponseController(w), begin: func() {
		h.Set("Content-Type", a.MediaType)
		h.Set("Content-Disposition", "attachment; filename="+strconv.Quote(a.Name))
		h.Set("X-Content-Type-Options", "nosniff")
		for _, t := range a.Trailers {
			h.Add("Trailer", t)
		}
	}}
	told, err := a.Write(out)
	if err == nil && !out.begun {
		_, err = out.Write(nil)
	}
	if err != nil {
		if !out.begun {
			return err
		}
		slog.Warn("a download broke off", "file", a.Name, "cause", err)
		panic(http.ErrAbortHandler)
	}
	for _, t := range a.Trailers {
		h.Set(t, told[t])
	}
	_ = out.rc.SetWriteDeadline(time.Now().Add(patience)) // for the trailers; net/http takes it away behind them
	return nil
}

type outlet struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begin func()
	begun bool
}

func (o *outlet) Write(b []byte) (int, error) {
	if !o.begun {
		o.begun = true
		o.begin()
	}
	if err := o.rc.SetWriteDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return o.w.Write(b)
}
