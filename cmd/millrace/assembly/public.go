package assembly

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"millrace/serving/gate/cork"
)

// Limits of the listeners. Answers have no write deadline: streams run for long and set their own.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// split sends a path to its surface: browsers and programs never share a router, a middleware or an error format.
func split(inference, control, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endAfter(w, r)
		defer limitBody(w, r).linger()
		switch p := r.URL.Path; {
		case inference != nil && (strings.HasPrefix(p, "/v1/") || p == "/v1"):
			inference.ServeHTTP(w, r)
		case control != nil && (strings.HasPrefix(p, "/api/") || p == "/api"):
			control.ServeHTTP(w, r)
		case pages != nil:
			pages.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// internalPages are metrics and profiles, for the loopback listener only.
func internalPages(reg *prometheus.Registry, healthy func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// listener is one running http.Server with an owner.
type listener struct {
	name string
	srv  *http.Server
	wg   sync.WaitGroup
}

// serve starts a server on l. base is the context of every request.
func serve(base context.Context, name string, l net.Listener, h http.Handler, failed func(error)) *listener {
	s := &listener{name: name, srv: &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: cork.Context,
		ErrorLog:    slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}}
	s.wg.Go(func() {
		if err := s.srv.Serve(cork.Listen(l)); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	})
	return s
}

// drain takes no new connections and waits for running requests until ctx ends; then it cuts them.
func (s *listener) drain(ctx context.Context) {
	if s == nil {
		return
	}
	if err := s.srv.Shutdown(ctx); err != nil {
		slog.Warn("requests were cut at shutdown", "listener", s.name, "error", err)
		_ = s.srv.Close()
	}
	s.wg.Wait()
}
