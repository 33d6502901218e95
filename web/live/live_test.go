package live

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// pipe is a browser's end of a stream inside a synctest bubble.
type pipe struct {
	http.ResponseWriter
	lines chan string
}

func (p pipe) Write(b []byte) (int, error) {
	for s := range strings.Lines(string(b)) {
		p.lines <- strings.TrimSpace(s)
	}
	return len(b), nil
}
func (p pipe) Flush()                           {}
func (p pipe) SetWriteDeadline(time.Time) error { return nil }

// open starts a stream for topics; its lines arrive on the channel, its end on done.
func open(t *testing.T, ctx context.Context, h *Hub, alive Alive, topics ...Topic) (lines chan string, done chan error) {
	t.Helper()
	s, err := h.join(topics)
	if err != nil {
		t.Fatal(err)
	}
	lines, done = make(chan string, 100), make(chan error, 1)
	c := echo.New().NewContext(httptest.NewRequest(http.MethodGet, "/live", nil).WithContext(ctx), pipe{httptest.NewRecorder(), lines})
	go func() {
		defer h.leave(s)
		done <- h.stream(c, s, alive)
	}()
	synctest.Wait()
	drain(lines)
	return lines, done
}

func drain(lines chan string) (out []string) {
	for {
		select {
		case l := <-lines:
			if l != "" && !strings.HasPrefix(l, "data") {
				out = append(out, l)
			}
		default:
			return out
		}
	}
}

func yes(echo.Context) bool { return true }

func TestAnEventReachesOnlyItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub()
		ctx, cancel := context.WithCancel(t.Context())
		mine, other := Org(ids.New()), Org(ids.New())
		a, _ := open(t, ctx, h, yes, mine)
		b, _ := open(t, ctx, h, yes, other)
		fleet, _ := open(t, ctx, h, yes, Fleet, mine)
		h.Publish(mine, Usage)
		synctest.Wait()
		if got := drain(a); len(got) != 1 || got[0] != "event: usage" {
			t.Errorf("the organization heard %q", got)
		}
		if got := drain(b); len(got) != 0 {
			t.Errorf("another organization heard %q", got)
		}
		if got := drain(fleet); len(got) != 1 {
			t.Errorf("a stream of two topics heard %q", got)
		}
		cancel()
		synctest.Wait()
		if n := h.Streams(); n != 0 {
			t.Errorf("%d streams are left after everyone went", n)
		}
	})
}

// A stream that is not read must not block or grow: events of one name merge.
func TestEventsMergeWhileNobodyReads(t *testing.T) {
	h := NewHub()
	s, err := h.join([]Topic{Fleet})
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		h.Publish(Fleet, Hosts)
		h.Publish(Fleet, Units)
	}
	if got := h.take(s); len(got) != 2 {
		t.Errorf("%d names are pending, want 2", len(got))
	}
	if got := h.take(s); len(got) != 0 {
		t.Errorf("%q was pending twice", got)
	}
}

func TestAStreamEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub()
		var signedIn atomic.Bool
		signedIn.Store(true)
		lines, done := open(t, t.Context(), h, func(echo.Context) bool { return signedIn.Load() }, Fleet)
		time.Sleep(heartbeat + time.Second)
		synctest.Wait()
		if got := drain(lines); len(got) != 1 || got[0] != ":" {
			t.Errorf("a heartbeat reads %q", got)
		}
		signedIn.Store(false)
		time.Sleep(heartbeat)
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the end is no error, got %v", err)
			}
		default:
			t.Error("the stream goes on without a session")
		}
	})
}

func TestClosingTheHubEndsEveryStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub()
		_, done := open(t, t.Context(), h, yes, Fleet)
		h.Close()
		h.Close()
		h.Publish(Fleet, Hosts)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("a stream survived the hub")
		}
		if _, err := h.join([]Topic{Fleet}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("joining a closed hub: %v", err)
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	h := NewHub()
	for range MaxStreams {
		if _, err := h.join(nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.join(nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("one stream too many: %v", err)
	}
}

// Over a real connection: the event is flushed at once, and a stranger's stream is told to stop.
func TestEventsAreFlushed(t *testing.T) {
	h := NewHub()
	e := echo.New()
	h.Register(e.Group(""), yes)
	e.GET("/as-member", func(c echo.Context) error {
		s, err := h.join([]Topic{Fleet})
		if err != nil {
			return err
		}
		defer h.leave(s)
		return h.stream(c, s, yes)
	})
	srv := httptest.NewServer(e)
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL + "/live")
	if err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("a stranger's stream: %v %v", resp, err)
	}
	resp, err = srv.Client().Get(srv.URL + "/as-member")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	scan := bufio.NewScanner(resp.Body)
	for scan.Scan() {
		switch scan.Text() {
		case "retry: 3000":
			h.Publish(Fleet, Ops)
		case "event: ops":
			h.Close()
			return
		}
	}
	t.Errorf("the stream ended without the event: %v", scan.Err())
}
