package live

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/web/session"
)

const (
	heartbeat    = 15 * time.Second // a comment line this often; the session is checked again then
	writeTimeout = 10 * time.Second // a browser that takes longer to read one line is gone
	retry        = 3 * time.Second  // browsers reconnect after this
)

// Path is where the stream is.
const Path = "/live"

// Alive reports whether the session behind a running stream still holds.
type Alive func(c echo.Context) bool

// Register adds the stream under Path. It answers people signed in; an operator hears the fleet, a member hears the
// organization.
func (h *Hub) Register(g *echo.Group, alive Alive) {
	g.GET(Path, func(c echo.Context) error {
		v, ok := session.Of(c.Request().Context())
		if !ok {
			// Not a page: the stream's script must not be led to a sign-in page.
			return c.NoContent(http.StatusNoContent) // 204 tells an EventSource to stop
		}
		var topics []Topic
		if v.Org != ids.Nil {
			topics = append(topics, Org(v.Org))
		}
		if v.Operator {
			topics = append(topics, Fleet)
		}
		s, err := h.join(topics)
		if err != nil {
			return err
		}
		defer h.leave(s)
		return h.stream(c, s, alive)
	})
}

func (h *Hub) stream(c echo.Context, s *sub, alive Alive) error {
	head := c.Response().Header()
	head.Set(echo.HeaderContentType, "text/event-stream")
	head.Set(echo.HeaderCacheControl, "no-store")
	head.Set("X-Accel-Buffering", "no")
	c.Response().WriteHeader(http.StatusOK)
	if send(c, fmt.Sprintf("retry: %d\n\n", retry.Milliseconds())) != nil {
		return nil // the browser left: nothing to answer
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		if err := h.step(c.Request().Context(), c, s, beat.C, alive); err != nil {
			return nil // the browser left, the session ended, or the server stops
		}
	}
}

func (h *Hub) step(ctx context.Context, c echo.Context, s *sub, beat <-chan time.Time, alive Alive) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case _, open := <-s.wake:
		if !open {
			return http.ErrServerClosed
		}
		for _, e := range h.take(s) {
			if err := send(c, fmt.Sprintf("event: %s\ndata: changed\n\n", e)); err != nil {
				return err
			}
		}
	case <-beat:
		if !alive(c) {
			return http.ErrServerClosed
		}
		return send(c, ":\n\n")
	}
	return nil
}

func send(c echo.Context, text string) error {
	ctl := http.NewResponseController(c.Response().Writer)
	if err := ctl.SetWriteDeadline(clock.System.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := c.Response().Write([]byte(text)); err != nil {
		return err
	}
	return ctl.Flush()
}
