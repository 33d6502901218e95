package assembly

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"millrace/agents/dial"
	"millrace/agents/wire"
	"millrace/api/agentapi"
	"millrace/db/bus"
	"millrace/internal/pki"
)

// takeDataLinks lets hosts that nobody can dial dial this gateway, when it has an address for them: hubs hear of it on the
// bus and tell the hosts.
func (s *Server) takeDataLinks(hosts *dial.Hosts, source *pki.Source) {
	c := s.cfg
	if !c.Roles.Gateway || c.DataLinks == nil {
		return
	}
	links := dial.NewLinks(slog.Default())
	hosts.Accept(links)
	mux := http.NewServeMux()
	mux.Handle("GET "+wire.PathData, links)
	s.life.run("data links", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, links.Close) // before the listener's end, which would wait for them
		defer stop()
		return agentapi.Serve(ctx, c.DataLinks, c.CA.Trust().PeerServer(source), mux, slog.Default())
	})
	s.life.run("data links' announcement", func(ctx context.Context) error { return s.announce(ctx) })
}

// announce says that this process takes data links for as long as it does.
func (s *Server) announce(ctx context.Context) error {
	said, err := json.Marshal(wire.Gateway{Name: processName(), URL: s.cfg.DataLinksURL})
	if err != nil {
		return err
	}
	round := time.NewTicker(wire.GatewayEvery)
	defer round.Stop()
	for {
		if err := s.cfg.Facts.Publish(bus.FleetGateways, said); err != nil {
			slog.Warn("hosts do not hear that this gateway takes data links", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-round.C:
		}
	}
}
