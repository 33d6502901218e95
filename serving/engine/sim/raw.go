package sim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"strconv"
	"sync"
	"time"
)

// Raw is the cheapest possible upstream, for measuring what stands in front of it: it answers every generation with the
// same tokens, precomputed, on bare connections or (RawConfig.HTTP) through Go's net/http. It simulates nothing: no queue,
// no cache, no time.
//
// A streamed answer has one chunk per token, RawConfig.Tokens of them or max_tokens when that is less, each written by
// itself as engines do; a whole answer is one object with the same count. So a client that wants a small whole answer
// through a gateway that always streams asks for a small max_tokens.
type Raw struct {
	cfg    RawConfig
	chunks [2][]rawPart // plain and with usage on each
	ends   []rawPart    // by number of tokens: the last chunk with usage, the end mark, the end of the body
	whole  []rawPart    // whole answers by number of tokens
	fixed  map[string]rawPart
	tasks  sync.WaitGroup
}

// rawPart is something precomputed: as it goes over a bare connection, and within that what is the body's.
type rawPart struct{ wire, body []byte }

// RawConfig shapes the answers.
type RawConfig struct {
	Tokens int           `help:"Tokens of an answer that is not capped lower." default:"100"`
	Gap    time.Duration `help:"Pause between chunks; 0 = none." default:"0s"`
	Burst  bool          `help:"Write all chunks at once instead of one by one."`
	HTTP   bool          `name:"http" help:"Serve with Go's net/http, as lean as a real engine's server may get, instead of on bare connections."`
}

// Limits of Raw.
const (
	rawMaxTokens   = 1000
	rawMaxHead     = 64 << 10 // bytes of a request's header
	rawPrompt      = 16       // prompt tokens of every answer
	rawID          = `"id":"chatcmpl-raw000000000000","object":"chat.completion`
	rawHead        = "HTTP/1.1 200 OK\r\nX-Millrace-Simulated: true\r\nContent-Type: "
	rawStreamStart = rawHead + "text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// NewRaw precomputes the answers.
func NewRaw(cfg RawConfig) (*Raw, error) {
	if cfg.Tokens == 0 {
		cfg.Tokens = 100
	}
	if cfg.Tokens < 1 || cfg.Tokens > rawMaxTokens {
		return nil, fmt.Errorf("sim: raw answers have 1 to %d tokens, not %d", rawMaxTokens, cfg.Tokens)
	}
	s := &Raw{cfg: cfg, fixed: map[string]rawPart{}}
	var text []byte
	for n := 0; n <= cfg.Tokens; n++ {
		usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":0}}`, rawPrompt, rawPrompt+n, n)
		last := fmt.Sprintf("data: {%s.chunk\",\"created\":1700000000,\"model\":\"raw\",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\n", rawID) +
			fmt.Sprintf("data: {%s.chunk\",\"created\":1700000000,\"model\":\"raw\",\"system_fingerprint\":\"simulated\",\"choices\":[],%s}\n\ndata: [DONE]\n\n", rawID, usage)
		s.ends = append(s.ends, frame(last, "0\r\n\r\n"))
		body := fmt.Sprintf(`{%s","created":1700000000,"model":"raw","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"logprobs":null,"finish_reason":"length"}],"system_fingerprint":"simulated",%s}`, rawID, text, usage)
		s.whole = append(s.whole, whole("application/json", body))
		p := &book.pieces[n%len(book.pieces)]
		text = append(text, p.json...)
		role := ""
		if n == 0 {
			role = `"role":"assistant",`
		}
		chunk := fmt.Sprintf("data: {%s.chunk\",\"created\":1700000000,\"model\":\"raw\",\"choices\":[{\"index\":0,\"delta\":{%s\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":null}]", rawID, role, p.json)
		next := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":0}}`, rawPrompt, rawPrompt+n+1, n+1)
		s.chunks[0] = append(s.chunks[0], frame(chunk+"}\n\n", ""))
		s.chunks[1] = append(s.chunks[1], frame(chunk+","+next+"}\n\n", ""))
	}
	s.fixed["/v1/models"] = whole("application/json", `{"object":"list","data":[{"id":"raw","object":"model","created":1700000000,"owned_by":"millrace-simulated"}]}`)
	s.fixed["/health"] = whole("text/plain", "")
	s.fixed["/metrics"] = whole("text/plain", "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n")
	return s, nil
}

// frame makes a chunk of a body; after follows it.
func frame(data, after string) rawPart {
	wire := fmt.Appendf(nil, "%x\r\n%s\r\n%s", len(data), data, after)
	end := len(wire) - len(after) - len("\r\n")
	return rawPart{wire, wire[end-len(data) : end]}
}

func whole(kind, body string) rawPart {
	wire := fmt.Appendf(nil, "%s%s\r\nContent-Length: %d\r\n\r\n%s", rawHead, kind, len(body), body)
	return rawPart{wire, wire[len(wire)-len(body):]}
}

// Serve answers on ln until ctx ends, then closes all connections and waits for them.
func (s *Raw) Serve(ctx context.Context, ln net.Listener) error {
	if s.cfg.HTTP {
		return s.serveHTTP(ctx, ln)
	}
	defer s.tasks.Wait()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("sim: raw: %w", err)
		}
		s.tasks.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			_ = s.converse(c) // a client that leaves or errs ends its connection
		})
	}
}

// rawRequest is what matters of a request.
type rawRequest struct {
	path   string
	stream bool
	usage  bool // on every chunk
	tokens int
	close  bool
}

// converse answers requests on one connection.
func (s *Raw) converse(c net.Conn) error {
	r := bufio.NewReaderSize(c, rawMaxHead)
	var body []byte
	for {
		q, rest, err := s.read(r, body)
		if err != nil {
			return err
		}
		if body = rest; q.stream {
			err = s.stream(c, q)
		} else if fixed, ok := s.fixed[q.path]; ok {
			_, err = c.Write(fixed.wire)
		} else {
			_, err = c.Write(s.whole[q.tokens].wire)
		}
		if err != nil || q.close {
			return err
		}
	}
}

// read takes one request from r, using and returning space for its body.
func (s *Raw) read(r *bufio.Reader, space []byte) (q rawRequest, body []byte, err error) {
	q.tokens = s.cfg.Tokens
	length := 0
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return q, space, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			if parts := bytes.Split(line, []byte(" ")); len(parts) == 3 {
				q.path = string(parts[1])
			} else {
				return q, space, errors.New("sim: raw: not HTTP")
			}
			continue
		case len(line) == 0:
			if length < 0 || length > maxBodyBytes {
				return q, space, errors.New("sim: raw: body too large")
			}
			if cap(space) < length {
				space = make([]byte, length)
			}
			body = space[:length]
			if _, err := io.ReadFull(r, body); err != nil {
				return q, body, err
			}
			s.inspect(&q, body)
			return q, body, nil
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok {
			value = bytes.TrimSpace(value)
			switch {
			case bytes.EqualFold(name, []byte("content-length")):
				if length, err = strconv.Atoi(string(value)); err != nil {
					return q, space, err
				}
			case bytes.EqualFold(name, []byte("connection")):
				q.close = bytes.EqualFold(value, []byte("close"))
			case bytes.EqualFold(name, []byte("transfer-encoding")):
				return q, space, errors.New("sim: raw: bodies need a length")
			}
		}
	}
}

// inspect finds what matters in a body without reading it as JSON.
func (s *Raw) inspect(q *rawRequest, body []byte) {
	q.stream = bytes.Contains(body, []byte(`"stream":true`)) || bytes.Contains(body, []byte(`"stream": true`))
	q.usage = bytes.Contains(body, []byte(`"continuous_usage_stats":true`))
	for _, name := range [...]string{`"max_tokens":`, `"max_completion_tokens":`} {
		i := bytes.Index(body, []byte(name))
		if i < 0 {
			continue
		}
		n := 0
		for _, d := range bytes.TrimLeft(body[i+len(name):], " ") {
			if d < '0' || d > '9' || n > rawMaxTokens {
				break
			}
			n = n*10 + int(d-'0')
		}
		q.tokens = min(q.tokens, max(n, 1))
	}
}

func (s *Raw) stream(c net.Conn, q rawRequest) error {
	parts := make(net.Buffers, 0, q.tokens+2)
	parts = append(parts, []byte(rawStreamStart))
	for p := range s.answer(q) {
		parts = append(parts, p.wire)
	}
	if s.cfg.Burst {
		_, err := parts.WriteTo(c)
		return err
	}
	for i, p := range parts {
		if s.cfg.Gap > 0 && i > 0 {
			time.Sleep(s.cfg.Gap)
		}
		if _, err := c.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// answer is what a stream consists of.
func (s *Raw) answer(q rawRequest) iter.Seq[rawPart] {
	chunks := s.chunks[0]
	if q.usage {
		chunks = s.chunks[1]
	}
	return func(yield func(rawPart) bool) {
		for _, p := range chunks[:q.tokens] {
			if !yield(p) {
				return
			}
		}
		yield(s.ends[q.tokens])
	}
}
