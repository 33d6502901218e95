package trial

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/ids"
)

// Ask is a chat request, and what the client that makes it is going to do.
type Ask struct {
	Model  string
	Prompt string
	Stream bool
	// MaxTokens is how many tokens the simulated engine generates: it is told to ignore its own end.
	MaxTokens int
	// Leave says how the client leaves before the end; LeaveTokens of a stream, or LeaveAfter when not 0, say when.
	Leave       Leave
	LeaveTokens int64
	LeaveAfter  time.Duration
}

// Leave is a way to go before the end of an answer.
type Leave int

// The ways. HalfClose sends no more but reads on, so that the client knows all that was written to it. Close is what most
// clients do: what was under way is lost.
const (
	Stay Leave = iota
	HalfClose
	Close
)

// Body is the request as it is sent.
func (a *Ask) Body() []byte {
	body := map[string]any{"model": a.Model, "messages": []map[string]string{{"role": "user", "content": a.Prompt}}}
	if a.MaxTokens > 0 {
		body["max_tokens"], body["ignore_eos"] = a.MaxTokens, true
	}
	if a.Stream {
		body["stream"], body["stream_options"] = true, map[string]bool{"include_usage": true}
	}
	b, _ := json.Marshal(body) // plain values always marshal
	return b
}

// Usage is what an answer says it used.
type Usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// Answer is what a client got, to the token.
type Answer struct {
	Request ids.ID // ids.Nil = not even the head came
	Status  int    // 0 = no head
	Header  http.Header
	Whole   bool // everything came, to the last byte
	Usage   *Usage
	Tokens  int64  // of a stream: pieces of content that came
	Text    []byte // of a stream: that content; else the body
	Length  int64  // of a whole answer: what the head says its body has; -1 = unknown
	Ended   bool   // the server ended the answer in order, whole or not
	Left    bool   // the client left first
	Err     error  // why it is not whole
}

// Times of a client.
const (
	dialWait = 5 * time.Second
	askWait  = 2 * time.Minute // for a whole answer
)

// Chat asks base (http://host:port) with a key, on a connection of its own.
func Chat(ctx context.Context, base, key string, a Ask) (got Answer) {
	got.Length = -1
	u, err := url.Parse(base)
	if err != nil {
		got.Err = err
		return got
	}
	d := net.Dialer{Timeout: dialWait}
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		got.Err = err
		return got
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(askWait))
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", bytes.NewReader(a.Body()))
	if err != nil {
		got.Err = err
		return got
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	if got.Err = req.Write(conn); got.Err == nil {
		c := client{ask: a, conn: conn.(*net.TCPConn), got: &got}
		got.Err = c.read(req)
		got.Left = c.left.Load()
	}
	return got
}

// client reads one answer.
type client struct {
	ask  Ask
	conn *net.TCPConn
	got  *Answer
	left atomic.Bool
	said error // by an error event
}

// errLeft ends the reading of a client that closed.
var errLeft = errors.New("the client left")

func (c *client) read(req *http.Request) error {
	if c.ask.Leave != Stay && c.ask.LeaveAfter > 0 {
		defer time.AfterFunc(c.ask.LeaveAfter, func() { _ = c.leave() }).Stop()
	}
	resp, err := http.ReadResponse(bufio.NewReader(c.conn), req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got := c.got
	got.Status, got.Header, got.Length = resp.StatusCode, resp.Header, resp.ContentLength
	if got.Request, err = ids.Parse(ids.Request, resp.Header.Get("X-Request-Id")); err != nil {
		return err
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return c.stream(resp.Body)
	}
	got.Text, err = io.ReadAll(resp.Body)
	if got.Ended = err == nil; err != nil || got.Status != http.StatusOK {
		return err
	}
	var body struct {
		Usage *Usage `json:"usage"`
	}
	if err := json.Unmarshal(got.Text, &body); err != nil {
		return fmt.Errorf("a whole answer is no JSON: %w", err)
	}
	got.Usage, got.Whole = body.Usage, true
	return nil
}

// stream reads events until the end mark, or until there are no more.
func (c *client) stream(body io.Reader) error {
	got := c.got
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			got.Ended = err == io.EOF
			switch {
			case c.said != nil:
				return c.said
			case got.Whole:
				return nil
			case got.Ended:
				return io.ErrUnexpectedEOF
			}
			return err
		}
		data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\n"), []byte("data: "))
		switch {
		case !ok:
		case string(data) == "[DONE]":
			got.Whole = c.said == nil
		default:
			if err := c.event(data); err != nil {
				return err
			}
		}
	}
}

var contentMark = []byte(`"delta":{"content":"`)

// event takes in one event. Looking for the content by its mark is cheap enough to load a gateway from one machine.
func (c *client) event(data []byte) error {
	got := c.got
	if at := bytes.Index(data, contentMark); at >= 0 {
		text := data[at+len(contentMark):]
		if end := bytes.Index(text, []byte(`"},"`)); end > 0 {
			got.Tokens++
			got.Text = append(got.Text, text[:end]...)
			if c.ask.Leave != Stay && c.ask.LeaveAfter == 0 && got.Tokens >= c.ask.LeaveTokens && !c.left.Load() {
				return c.leave()
			}
		}
		return nil
	}
	var e struct {
		Usage *Usage          `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("an event is no JSON: %w", err)
	}
	if e.Usage != nil {
		got.Usage = e.Usage
	}
	if e.Error != nil {
		c.said = fmt.Errorf("the stream says: %s", e.Error)
	}
	return nil
}

// leave goes as the client was told to.
func (c *client) leave() error {
	c.left.Store(true)
	if c.ask.Leave == HalfClose {
		return c.conn.CloseWrite()
	}
	_ = c.conn.Close()
	return errLeft
}
