// Package agentapi is the TLS listener that agents dial. It owns the listener's limits and its end; what is said there is
// the hub's (agents/hub), who may come is decided by internal/pki.
package agentapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the listener. There is no limit on a request's whole time: a link lasts for days.
const (
	headerTime   = 10 * time.Second
	idleTime     = time.Minute
	maxHeader    = 16 << 10
	shutdownTime = 5 * time.Second
)

// Serve answers agents on a listener until ctx ends. Links are broken by the hub when its own Run ends: let that be
// first, so that Serve need not cut them. cfg comes from pki.Trust.HubServer.
func Serve(ctx context.Context, ln net.Listener, cfg *tls.Config, hub http.Handler, log *slog.Logger) error {
	s := &http.Server{Handler: hub, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(tls.NewListener(ln, cfg)) }() // ends with Shutdown or Close, waited for below
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	err := s.Shutdown(ending)
	if err != nil {
		err = s.Close()
	}
	if serving := <-failed; !errors.Is(serving, http.ErrServerClosed) {
		err = errors.Join(err, serving)
	}
	return err
}
