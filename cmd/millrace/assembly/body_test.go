package assembly

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

func TestASilentBodyEnds(t *testing.T) {
	failed := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limitBody(w, r)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // instead of 20 s
		_, err := io.ReadAll(r.Body)
		failed <- err
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	if err := <-failed; err == nil {
		t.Error("a body of one byte passed for one of a hundred")
	}
	if _, err := bufio.NewReader(conn).ReadByte(); err != nil && err != io.EOF {
		t.Log(err) // closed with or without an answer: both free the connection
	}
}
