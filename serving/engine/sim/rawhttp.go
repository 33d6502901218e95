package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// serveHTTP is Serve with Go's HTTP server. Engines serve from frameworks that cost more; none costs as little as bare
// connections, beside which everything looks slow.
func (s *Raw) serveHTTP(ctx context.Context, ln net.Listener) error {
	server := &http.Server{Handler: http.HandlerFunc(s.answerHTTP), ReadHeaderTimeout: rawHeadTime, BaseContext: func(net.Listener) context.Context { return ctx }}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() { defer close(stopped); _ = server.Close() })()
	err := server.Serve(ln)
	if ctx.Err() != nil {
		<-stopped
		return ctx.Err()
	}
	return err
}

const rawHeadTime = 10 * time.Second

func (s *Raw) answerHTTP(w http.ResponseWriter, r *http.Request) {
	q := rawRequest{path: r.URL.Path, tokens: s.cfg.Tokens}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
		return
	}
	s.inspect(&q, body)
	h := w.Header()
	h.Set("X-Millrace-Simulated", "true")
	if q.stream {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		s.streamHTTP(w, q)
		return
	}
	answer, ok := s.fixed[q.path]
	if !ok {
		answer = s.whole[q.tokens]
		h.Set("Content-Type", "application/json")
	}
	_, _ = w.Write(answer.body) // a client that leaves ends its connection
}

func (s *Raw) streamHTTP(w http.ResponseWriter, q rawRequest) {
	flusher, _ := w.(http.Flusher)
	for p := range s.answer(q) {
		if _, err := w.Write(p.body); err != nil {
			return
		}
		if s.cfg.Burst || flusher == nil {
			continue
		}
		flusher.Flush()
		if s.cfg.Gap > 0 {
			time.Sleep(s.cfg.Gap)
		}
	}
}
