package fabric

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"millrace/internal/clock"
)

// pair is the two ends of a connection.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

func TestAWayIsMeasured(t *testing.T) {
	c := clock.NewManual(time.Unix(1_800_000_000, 0))
	s := NewServer(c)
	a, b := pair(t)
	done := make(chan error, 1)
	go func() {
		done <- s.Answer(t.Context(), b, "h1")
		_ = b.Close()
	}()
	r, err := Measure(a)
	if err != nil || r.Gbps <= 0 || r.RTT <= 0 || r.RTT > probeLimit {
		t.Errorf("%+v, %v", r, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	// One peer may not come again at once; another may.
	if err := s.Answer(t.Context(), b, "h1"); !errors.Is(err, ErrBusy) {
		t.Errorf("again at once: %v", err)
	}
	if !s.begin("h2") {
		t.Fatal("another peer was refused")
	}
	if s.begin("h3") {
		t.Error("two at a time")
	}
	s.end()
	c.Advance(answerEvery)
	if !s.begin("h1") {
		t.Error("refused after its time")
	}
}

func TestWhatIsNoProbeIsAnError(t *testing.T) {
	s := NewServer(clock.System)
	a, b := pair(t)
	go func() { _, _ = io.WriteString(a, "GET / HTTP/1.1\r\n\r\n") }()
	if err := s.Answer(t.Context(), b, "h1"); err == nil || errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	// A peer that is busy just ends the connection: no measurement, and no number made up.
	a, b = pair(t)
	_ = b.Close()
	if r, err := Measure(a); err == nil {
		t.Errorf("%+v", r)
	}
	// One that sends without end is not listened to.
	a, b = pair(t)
	go func() {
		_, _ = io.CopyN(b, b, pings)
		for buf := make([]byte, chunk); ; {
			if _, err := b.Write(buf); err != nil {
				return
			}
		}
	}()
	if r, err := Measure(a); err == nil {
		t.Errorf("%+v", r)
	}
}
