package assembly

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A body that has arrived takes its deadline away: the handler may then run for as long as it likes, and a client that
// stays is not taken for one that left.
func TestTheDeadlineEndsWithTheBody(t *testing.T) {
	left := make(chan bool, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limitBody(w, r)
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // as if the time were nearly over
		body, err := io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			left <- true
		case <-time.After(200 * time.Millisecond):
			left <- false
		}
		fmt.Fprintf(w, "%s %v", body, err)
	}))
	defer srv.Close()
	resp, err := http.Post(srv.URL, "text/plain", strings.NewReader("whole"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != "whole <nil>" || <-left {
		t.Errorf("%q", got)
	}
}

// deadlines notes the read deadlines that a server is given.
type deadlines struct {
	http.ResponseWriter
	read []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = append(d.read, t); return nil }

// Every body has an end to its time, whatever length its client tells.
func TestABodyHasItsTime(t *testing.T) {
	for length, want := range map[int64]time.Duration{100: bodyTime, -1: unknownBody, 64 << 20: bodyTime + 1024*time.Second,
		1 << 40: bodyTime + 4096*time.Second, 1 << 62: bodyTime + 4096*time.Second} {
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
		r.ContentLength = length
		before := time.Now()
		limitBody(w, r)
		if len(w.read) != 1 || w.read[0].Before(before.Add(want)) || w.read[0].After(time.Now().Add(want)) {
			t.Errorf("a body of %d bytes: %v, want one in %v", length, w.read, want)
		}
	}
}
