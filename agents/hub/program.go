package hub

import (
	"context"
	"io"
	"net/http"
	"os"
	"strconv"

	"millrace/agents/wire"
)

// beside adds to an answer what is not desired state.
func (h *Hub) beside(ctx context.Context, me *hostLink, in *wire.Observed, out *wire.SyncResponse) *wire.SyncResponse {
	out.NowMS = h.cfg.Clock.Now().UnixMilli()
	if in.DataURL == wire.DataByLink {
		out.Gateways = h.gateways.list(h.cfg.Clock.Now())
	}
	if in.ProbeAddress != "" {
		out.Peers = h.named(ctx, me.id)
	}
	if h.cfg.Programs == nil || in.Channel == "" {
		return out
	}
	u, _, ok, err := h.cfg.Programs.Offer(in.Channel, in.Platform)
	if err != nil {
		h.cfg.Log.Warn("hub: agents' releases cannot be read", "error", err)
	} else if ok && u.Version != in.AgentVersion {
		out.Update = &u
	}
	return out
}

// program sends the agent's program of a channel.
func (h *Hub) program(w http.ResponseWriter, r *http.Request) {
	if h.cfg.Programs == nil {
		http.Error(w, "this hub has no releases of agents", http.StatusNotFound)
		return
	}
	u, path, ok, err := h.cfg.Programs.Offer(r.FormValue("channel"), r.FormValue("platform"))
	if err != nil || !ok {
		http.Error(w, "there is no such program", http.StatusNotFound)
		return
	}
	in, err := os.Open(path)
	if err != nil {
		h.cfg.Log.Error("hub: an agent's program cannot be read", "error", err)
		http.Error(w, "the program cannot be read", http.StatusInternalServerError)
		return
	}
	defer in.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(u.Bytes, 10))
	_, _ = io.Copy(w, io.LimitReader(in, u.Bytes)) // the agent sees that something is missing
}
